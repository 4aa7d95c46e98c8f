"""An engine that streams one word every 50 ms, for tests that need long streams.

``WAIT_FOR``: a file that must exist before it listens. ``SLOTS``: how many requests it handles at a
time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from aiohttp import web

slots = asyncio.Semaphore(int(os.environ.get("SLOTS", "1000")))


async def health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    async with slots:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for n in range(int(body.get("max_tokens", 10))):
            choice = {"index": 0, "delta": {"content": f"{n} "}}
            chunk = {"object": "chat.completion.chunk", "choices": [choice]}
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await asyncio.sleep(0.05)

        await response.write(b"data: [DONE]\n\n")
        return response


app = web.Application()
app.add_routes([web.get("/health", health), web.post("/v1/chat/completions", chat)])
print("slow engine starts", flush=True)
while not Path(os.environ.get("WAIT_FOR", "/")).exists():
    time.sleep(0.05)
host = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
web.run_app(app, host=host, port=int(sys.argv[1]), print=None)
