"""A fake OpenAI API: sends the same chunks in every chat, with arbitrary boundaries between
events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web


class FakeOpenAi:
    """``chunks``: the response, as pieces of text, or objects that are sent unchanged.
    ``sends_done``: the stream ends with ``[DONE]``. ``requests``: the bodies of the requests
    received. ``models``: by name.
    """

    def __init__(self) -> None:
        self.chunks: list[str | dict[str, Any]] = [" the sea", " and the moon", "."]
        self.sends_done = True
        self.requests: list[Any] = []
        self.models: dict[str, dict[str, Any]] = {}

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        if not body["stream"]:
            content = "".join(piece for piece in self.chunks if isinstance(piece, str))
            return web.json_response(
                {"choices": [{"message": {"role": "assistant", "content": content}}]}
            )

        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(
            b": ping\r\n\r\n" + _event({"choices": [{"delta": {"role": "assistant"}}]})
        )

        for piece in self.chunks:
            event = _event(
                {"choices": [{"delta": {"content": piece}}]} if isinstance(piece, str) else piece
            )
            for half in (event[:9], event[9:]):
                await response.write(half)
                await asyncio.sleep(0.001)

        if self.sends_done:
            await response.write(_event({"choices": [], "usage": {}}) + b"data: [DONE]\n\n")

        return response

    async def model(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self.models[request.match_info["name"]])


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"
