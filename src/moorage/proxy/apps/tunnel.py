"""A TCP connection through a WebSocket: see ``common.apps`` for what its messages mean."""

from __future__ import annotations

import asyncio

from aiohttp import WSCloseCode, WSMsgType, web

from moorage.common.aio.sockets import reset
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.service_ports import TUNNEL_EOF, TUNNEL_PROTOCOL

_PIECE = 64 * 1024
_LARGEST_MESSAGE = 1024 * 1024


async def tunnel(
    request: web.BaseRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> web.StreamResponse:
    """Until both directions have ended, or either connection breaks: then the other one breaks too."""
    # No heartbeat: a program that reads slowly holds everything up, pongs too, and that is no fault.
    socket = web.WebSocketResponse(
        protocols=(TUNNEL_PROTOCOL,), max_msg_size=_LARGEST_MESSAGE, compress=False, timeout=2.0
    )
    ways, whole = [], False
    try:
        await socket.prepare(request)
        ways = [
            spawn("proxy.tunnel.up", _up(socket, writer)),
            spawn("proxy.tunnel.down", _down(reader, socket)),
        ]
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        whole = all(way.result() for way in done)
        if whole:
            await asyncio.wait(ways)
            whole = all(way.result() for way in ways)
        await cancel_and_wait(*ways)
        code = WSCloseCode.OK if whole else WSCloseCode.INTERNAL_ERROR
        await socket.close(code=code, message=b"" if whole else b"the connection to the app broke")
        return socket
    finally:
        await cancel_and_wait(*ways)
        if whole:
            writer.close()
        else:
            reset(writer.transport)  # or the app would take half of it for all


async def _up(socket: web.WebSocketResponse, writer: asyncio.StreamWriter) -> bool:
    """True when the client has ended its direction as it should."""
    try:
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                writer.write(message.data)
                await writer.drain()
            elif message.type is WSMsgType.TEXT and message.data == TUNNEL_EOF:
                writer.write_eof()
                return True
    except ConnectionError:
        pass
    return False


async def _down(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> bool:
    """True when the app has ended its direction as it should."""
    try:
        while piece := await reader.read(_PIECE):
            await socket.send_bytes(piece)
        await socket.send_str(TUNNEL_EOF)
    except ConnectionError:
        return False
    return True
