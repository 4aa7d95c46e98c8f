"""Where played kernels pretend to listen: one port that answers for all of them, or one that refuses.

Both are async context managers that give the port, and raise ``StartupError`` where there is none to be had.
"""

from __future__ import annotations

import json
import socket

from aiohttp import web

from moorage.common.model.errors import StartupError

_WORD = "aye"


def _bind(host: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        sock.bind((host, 0))
    except OSError as error:
        sock.close()
        raise StartupError(
            f"the simulation cannot have a port at {host}: {error}",
            next_step="set agent.address to an address of this machine",
        ) from None
    return sock


def _port(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


class Refusing:
    """A port that is taken and not listened on: nobody else gets it, and whoever calls is refused."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._sock: socket.socket | None = None

    async def __aenter__(self) -> int:
        self._sock = _bind(self._host)
        return _port(self._sock)

    async def __aexit__(self, *exc: object) -> None:
        assert self._sock is not None
        self._sock.close()


class Answering:
    """A server that answers every chat or completion with one word, in OpenAI's shapes, streamed if asked."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> int:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", _chat)
        app.router.add_post("/v1/completions", _completion)
        app.router.add_get("/{path:.*}", _well)
        sock = _bind(self._host)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.SockSite(self._runner, sock).start()
        return _port(sock)

    async def __aexit__(self, *exc: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()


async def _well(request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _chat(request: web.Request) -> web.StreamResponse:
    message = {"role": "assistant", "content": _WORD}
    return await _answer(request, "chat.completion", {"message": message}, {"delta": message})


async def _completion(request: web.Request) -> web.StreamResponse:
    return await _answer(request, "text_completion", {"text": _WORD}, {"text": _WORD})


async def _answer(
    request: web.Request, kind: str, whole: dict[str, object], piece: dict[str, object]
) -> web.StreamResponse:
    try:
        asked = await request.json()
    except json.JSONDecodeError:
        asked = None
    if not isinstance(asked, dict):
        return web.json_response({"error": {"message": "the body is not a JSON object"}}, status=400)
    frame = {"id": "played", "created": 0, "model": str(asked.get("model", ""))}
    end = {"index": 0, "finish_reason": "stop"}
    if not asked.get("stream"):
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return web.json_response(frame | {"object": kind, "choices": [end | whole], "usage": usage})
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    chunk = frame | {"object": "chat.completion.chunk" if kind == "chat.completion" else kind}
    data = json.dumps(chunk | {"choices": [end | piece]})
    await stream.write(f"data: {data}\n\ndata: [DONE]\n\n".encode())
    await stream.write_eof()
    return stream
