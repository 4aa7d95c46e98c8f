"""TCP tunnel through a WebSocket. ``common.model.service_ports`` defines its messages."""

from __future__ import annotations

import asyncio

from aiohttp import WSCloseCode, WSMsgType, web

from moorage.common.aio.sockets import reset
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.service_ports import TUNNEL_EOF, TUNNEL_PROTOCOL

_CHUNK_BYTES = 64 * 1024
_MAX_MESSAGE_BYTES = 1024 * 1024


async def tunnel(
    request: web.BaseRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> web.StreamResponse:
    """Relay until both directions have ended. If one connection breaks, also break the other
    one."""
    # No heartbeat, because a program that reads slowly also delays pongs, which is not an error.
    socket = web.WebSocketResponse(
        protocols=(TUNNEL_PROTOCOL,), max_msg_size=_MAX_MESSAGE_BYTES, compress=False, timeout=2.0
    )
    directions = []
    complete = False
    try:
        await socket.prepare(request)
        directions = [
            spawn("proxy.tunnel.up", _up(socket, writer)),
            spawn("proxy.tunnel.down", _down(reader, socket)),
        ]
        done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        complete = all(task.result() for task in done)
        if complete:
            await asyncio.wait(directions)
            complete = all(task.result() for task in directions)

        await cancel_and_wait(*directions)
        code = WSCloseCode.OK if complete else WSCloseCode.INTERNAL_ERROR
        await socket.close(
            code=code, message=b"" if complete else b"the connection to the app broke"
        )
        return socket
    finally:
        await cancel_and_wait(*directions)
        if complete:
            writer.close()
        else:
            # otherwise, the app would mistake a truncated stream for a complete one
            reset(writer.transport)


async def _up(socket: web.WebSocketResponse, writer: asyncio.StreamWriter) -> bool:
    """Relay from the client to the app. Returns True if the client ended its direction properly."""
    try:
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                writer.write(message.data)
                await writer.drain()
            elif message.type is WSMsgType.TEXT and message.data == TUNNEL_EOF:
                writer.write_eof()
                return True
    except OSError:
        pass

    return False


async def _down(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> bool:
    """Relay from the app to the client. Returns True if the app ended its direction properly."""
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            await socket.send_bytes(chunk)
        await socket.send_str(TUNNEL_EOF)
    except OSError:
        return False
    return True
