"""The engine of a scripted job: a miniature OpenAI server that listens on its node's address.

The request determines its behavior: ``max_tokens`` words, ``pause_ms`` between two of them, a
prompt ``too long`` is refused with vLLM's 400, and ``hang`` never gets an answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 16 tokens.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
}


class Engine:
    """``cancelled`` counts requests whose client left; ``seen`` has the paths in order."""

    def __init__(self, model: str = "tiny", api_key: str = "") -> None:
        self.model = model
        self.api_key = api_key
        self.seen: list[str] = []
        self.cancelled = 0
        self.active = 0
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int = 0) -> int:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

        return self.port

    async def kill(self) -> None:
        """End like a killed process: its connections break."""
        if self._runner is not None:
            runner = self._runner
            self._runner = None
            for connection in list(runner.server.connections if runner.server else []):
                if connection.transport is not None:
                    connection.transport.abort()
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.path)
        if request.path == "/health":
            return web.Response()

        if request.path == "/metrics":
            return web.Response(
                text=f"vllm:num_requests_running {float(self.active)}\nvllm:num_requests_waiting 0.0\n"
            )

        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": "Unauthorized"}, status=401)

        if request.path == "/v1/models":
            return web.json_response(
                {"object": "list", "data": [{"id": self.model, "object": "model"}]}
            )

        if request.method != "POST":
            return web.json_response({"detail": "Not Found"}, status=404)

        self.active += 1
        try:
            return await self._generate(request, await request.json())
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.active -= 1

    async def _generate(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        prompt = json.dumps(given.get("messages", given.get("prompt", "")))
        if "too long" in prompt:
            return web.json_response(TOO_LONG, status=400)
        if "hang" in prompt:
            await asyncio.Event().wait()

        count = int(given.get("max_tokens", 3))
        pause_s = float(given.get("pause_ms", 0)) / 1000
        words = [f" wörd{number}" for number in range(count)]
        usage = {"prompt_tokens": 2, "completion_tokens": count, "total_tokens": 2 + count}
        if not given.get("stream"):
            await asyncio.sleep(pause_s * count)
            choice = {"index": 0, "message": {"role": "assistant", "content": "".join(words)}}
            return web.json_response(
                {
                    "id": "c",
                    "model": self.model,
                    "choices": [choice | {"finish_reason": "stop"}],
                    "usage": usage,
                }
            )

        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await stream.prepare(request)
        for word in words:
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            await stream.write(_event({"id": "c", "model": self.model, "choices": [choice]}))
            if pause_s:
                await asyncio.sleep(pause_s)

        last = {"index": 0, "delta": {}, "finish_reason": "stop"}
        await stream.write(
            _event({"id": "c", "model": self.model, "choices": [last], "usage": usage})
        )
        await stream.write(b"data: [DONE]\n\n")
        return stream


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


async def _serve_for_ever(port: int) -> None:
    listening = await Engine().start("0.0.0.0", port)
    if not port:
        Path("progress.txt").write_text(str(listening))
    await asyncio.Event().wait()


if __name__ == "__main__":
    # Without a fixed port, it writes down the port that it found, as a job's program does. The
    # template's parameters may follow.
    asyncio.run(_serve_for_ever(int(sys.argv[1]) if sys.argv[1:2] and sys.argv[1].isdigit() else 0))
