"""Engine that streams one word every 50 ms, for tests that need long streams."""

from __future__ import annotations

import asyncio
import json
import sys

from aiohttp import web


async def health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for n in range(int(body.get("max_tokens", 10))):
        chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": f"{n} "}}]}
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await asyncio.sleep(0.05)
    await response.write(b"data: [DONE]\n\n")
    return response


app = web.Application()
app.add_routes([web.get("/health", health), web.post("/v1/chat/completions", chat)])
print("slow engine starts", flush=True)
host = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
web.run_app(app, host=host, port=int(sys.argv[1]), print=None)
