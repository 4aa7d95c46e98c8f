"""Program with two service ports: HTTP with WebSocket (echo), and TCP that reverses its input."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import WSMsgType, web


async def reverse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.read())[::-1])
    writer.close()


async def answer(request: web.Request) -> web.StreamResponse:
    if request.headers.get("Upgrade", "").lower() != "websocket":
        return web.Response(text=f"{request.path} {len(await request.read())}")
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(f"echo {message.data}")
    return socket


async def main(http_port: int, tcp_port: int) -> None:
    runner = web.ServerRunner(web.Server(answer))  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", http_port).start()
    server = await asyncio.start_server(reverse, "127.0.0.1", tcp_port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
