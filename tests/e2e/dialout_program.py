"""A program with two service ports: HTTP with a WebSocket echo and a stream of numbers, and TCP
that reverses its input."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import WSMsgType, web


async def reverse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.read())[::-1])
    writer.close()


async def answer(request: web.Request) -> web.StreamResponse:
    if request.path == "/stream":
        stream = web.StreamResponse()
        await stream.prepare(request)
        for number in range(20):
            await stream.write(f"{number}\n".encode())
            await asyncio.sleep(0.05)

        return stream

    if request.headers.get("Upgrade", "").lower() != "websocket":
        return web.Response(text=f"{request.path} {len(await request.read())}")

    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(f"echo {message.data}")

    return socket


async def main(http_port: int, tcp_port: int, host: str = "127.0.0.1") -> None:
    runner = web.ServerRunner(web.Server(answer))  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, host, http_port).start()
    server = await asyncio.start_server(reverse, host, tcp_port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
