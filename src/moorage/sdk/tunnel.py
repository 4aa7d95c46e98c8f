"""The bytes of one TCP connection to an app of a session, through a proxy."""

from __future__ import annotations

import asyncio

import aiohttp

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.service_ports import TUNNEL_EOF, TUNNEL_PROTOCOL
from moorage.common.views.resources import Problem
from moorage.sdk.errors import ApiError, Unreachable, why

_PIECE = 64 * 1024


async def carry(
    http: aiohttp.ClientSession,
    url: str,
    access_token: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Carry what ``reader`` brings to the app and what it answers to ``writer``, until both have ended.

    ``url``: ``http://PROXY/tunnel/SESSION_ID/APP``. Raises ``ApiError`` when the proxy refuses,
    ``Unreachable`` when it does not answer or the connection breaks. ``writer`` is for the caller to close.
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
                whole = await _down(socket, writer)
                if not whole and not (up.done() and up.result() is False):
                    raise ConnectionResetError("the app's connection broke")
                await up
            finally:
                await cancel_and_wait(up)
    except aiohttp.WSServerHandshakeError as error:
        raise _refused(error) from None
    except (aiohttp.ClientError, ConnectionError) as error:
        raise Unreachable(
            f"the connection to the proxy at {url} failed ({why(error)})",
            next_step="see whether it runs; give its address with --openai-url",
        ) from error


async def _up(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> bool:
    """False if the near end broke: then the far one is broken too."""
    try:
        while piece := await reader.read(_PIECE):
            await socket.send_bytes(piece)
        await socket.send_str(TUNNEL_EOF)
    except ConnectionError:
        await socket.close(code=aiohttp.WSCloseCode.INTERNAL_ERROR)
        return False
    return True


async def _down(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> bool:
    """True when the app has ended its direction as it should."""
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            writer.write(message.data)
            await writer.drain()
        elif message.type is aiohttp.WSMsgType.TEXT and message.data == TUNNEL_EOF:
            writer.write_eof()
            return True
    return False


def _refused(error: aiohttp.WSServerHandshakeError) -> ApiError:
    told = error.headers.get("x-moorage-error", "") if error.headers else ""
    message, code = told or f"what answers there (HTTP {error.status}) is not a Moorage proxy", "refused"
    return ApiError(error.status, Problem(title=code, status=error.status, detail=message, code=code))
