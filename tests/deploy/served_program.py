"""An engine and an app in one program, for tests of web servers in front of Moorage: a stream of
tokens, WebSockets, uploads, and the headers that arrive.

``python served_program.py PORT``.
"""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import WSMsgType, web

PACE_S = 0.1


async def health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def chat(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(8):
        choice = {"index": 0, "delta": {"content": f"{number} "}}
        chunk = {"object": "chat.completion.chunk", "choices": [choice]}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await asyncio.sleep(PACE_S)

    await response.write(b"data: [DONE]\n\n")
    return response


async def echo(request: web.Request) -> web.WebSocketResponse:
    ws = web.WebSocketResponse()
    await ws.prepare(request)
    async for message in ws:
        if message.type is WSMsgType.TEXT:
            await ws.send_str(f"{request.path}: {message.data}")

    return ws


async def upload(request: web.Request) -> web.Response:
    size = 0
    async for piece in request.content.iter_any():
        size += len(piece)
    return web.json_response({"size": size})


async def headers(request: web.Request) -> web.Response:
    return web.json_response([list(pair) for pair in request.headers.items()])


app = web.Application()
app.add_routes(
    [
        web.get("/health", health),
        web.get("/v1/realtime", echo),
        web.post("/v1/chat/completions", chat),
        web.get("/{prefix:.*}echo", echo),
        web.get("/{prefix:.*}headers", headers),
        web.put("/{prefix:.*}upload", upload),
    ]
)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
