"""Tunnel for one TCP connection to an app of a session, over a proxy's WebSocket."""

from __future__ import annotations

import asyncio

import aiohttp

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.service_ports import TUNNEL_EOF, TUNNEL_PROTOCOL
from moorage.common.views.resources import Problem
from moorage.sdk.errors import ApiError, Unreachable, connection_error

_CHUNK_BYTES = 64 * 1024


async def forward_connection(
    http: aiohttp.ClientSession,
    url: str,
    access_token: str,
    reader: asyncio.StreamReader,
    *,
    writer: asyncio.StreamWriter,
) -> None:
    """Copy ``reader`` to the app and the app's answers to ``writer``, until both directions have
    ended.

    ``url``: ``http://PROXY/tunnel/SESSION_ID/APP``. Raises ``ApiError`` if the proxy refuses, and
    ``Unreachable`` if it does not answer or the connection breaks. The caller closes ``writer``.
    """
    try:
        async with http.ws_connect(
            url,
            protocols=(TUNNEL_PROTOCOL,),
            max_msg_size=0,
            headers={"Authorization": f"Bearer {access_token}"},
        ) as socket:
            up = spawn("sdk.tunnel.up", _up(reader, socket))
            try:
                complete = await _down(socket, writer)
                if not complete and not (up.done() and up.result() is False):
                    raise ConnectionResetError("the app's connection broke")

                await up
            finally:
                await cancel_and_wait(up)
    except aiohttp.WSServerHandshakeError as error:
        raise _refused(error) from None
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(
            f"the connection to the proxy at {url} failed ({connection_error(error)})",
            next_step="check that it runs, or give its address with --openai-url",
        ) from error


async def _up(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> bool:
    """Returns False if the local connection broke; the remote one is then also closed as broken."""
    try:
        while piece := await reader.read(_CHUNK_BYTES):
            await socket.send_bytes(piece)
        await socket.send_str(TUNNEL_EOF)
    except OSError:
        await socket.close(code=aiohttp.WSCloseCode.INTERNAL_ERROR)
        return False
    return True


async def _down(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> bool:
    """Returns True if the app ended its direction cleanly."""
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            writer.write(message.data)
            await writer.drain()
        elif message.type is aiohttp.WSMsgType.TEXT and message.data == TUNNEL_EOF:
            writer.write_eof()
            return True
    return False


def _refused(error: aiohttp.WSServerHandshakeError) -> ApiError:
    reason = error.headers.get("x-moorage-error", "") if error.headers else ""
    message = reason or f"the server there (HTTP {error.status}) is not a Moorage proxy"
    code = "refused"
    return ApiError(
        error.status, Problem(title=code, status=error.status, detail=message, code=code)
    )
