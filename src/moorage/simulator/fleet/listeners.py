"""Listeners of simulated kernels: one port that answers for all of them, or one that refuses
connections.

Both are async context managers that yield the port. They raise ``StartupError`` when no port can be
bound.
"""

from __future__ import annotations

import json
import socket

from aiohttp import web

from moorage.common.model.errors import StartupError

_ANSWER = "aye"


def _bind(host: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.bind((host, 0))
    except OSError as error:
        sock.close()
        raise StartupError(
            f"the simulation cannot bind a port on {host}: {error}",
            next_step="set agent.address to an address of this host",
        ) from None

    return sock


def _port(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


class RefusingPort:
    """A bound port without a listener: no other process can take it, and connections to it are
    refused."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._sock: socket.socket | None = None

    async def __aenter__(self) -> int:
        self._sock = _bind(self._host)
        return _port(self._sock)

    async def __aexit__(self, *exc: object) -> None:
        assert self._sock is not None
        self._sock.close()


class StubModelServer:
    """Answers every chat or text completion with one word, in OpenAI's format, streamed on
    request."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> int:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", _chat)
        app.router.add_post("/v1/completions", _completion)
        app.router.add_get("/{path:.*}", _health)
        sock = _bind(self._host)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.SockSite(self._runner, sock).start()
        return _port(sock)

    async def __aexit__(self, *exc: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()


async def _health(request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _chat(request: web.Request) -> web.StreamResponse:
    message = {"role": "assistant", "content": _ANSWER}
    return await _respond(request, "chat.completion", {"message": message}, {"delta": message})


async def _completion(request: web.Request) -> web.StreamResponse:
    return await _respond(request, "text_completion", {"text": _ANSWER}, {"text": _ANSWER})


async def _respond(
    request: web.Request, kind: str, choice: dict[str, object], delta: dict[str, object]
) -> web.StreamResponse:
    try:
        body = await request.json()
    except json.JSONDecodeError:
        body = None

    if not isinstance(body, dict):
        return web.json_response(
            {"error": {"message": "the body is not a JSON object"}}, status=400
        )

    frame = {"id": "simulated", "created": 0, "model": str(body.get("model", ""))}
    base = {"index": 0, "finish_reason": "stop"}
    if not body.get("stream"):
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return web.json_response(
            frame | {"object": kind, "choices": [base | choice], "usage": usage}
        )

    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    chunk = frame | {"object": "chat.completion.chunk" if kind == "chat.completion" else kind}
    data = json.dumps(chunk | {"choices": [base | delta]})
    await stream.write(f"data: {data}\n\ndata: [DONE]\n\n".encode())
    await stream.write_eof()

    return stream
