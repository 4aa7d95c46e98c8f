"""Engine whose every answer follows from the request: ``python -m tests.clients.engine KEY...``.

It serves the APIs of OpenAI and Anthropic at a free port, which it prints. It accepts the keys
that its arguments name and the model ``tiny``, and refuses others as vLLM does, so that a client
sees the same engine directly and through a proxy. What the last message asks for:

- ``status:429``: this error.
- ``sleep:3``: the answer after three seconds.
- ``long:100000``: an answer of this length.
- ``pace:0.05``: ten pieces at this distance.
- ``body``: the request's body as JSON.
- ``headers``: the headers that a client may set, as JSON.
- ``bare:204``: this status, without a body.
- ``cut``: the first events of a stream, or half of an answer, and the end of the connection.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from aiohttp import WSMsgType, web

from tests.clients import answers

MODEL = "tiny"
# Headers that change with the client's own state or with the way to the engine.
CLIENT_HEADERS = ("anthropic-beta", "anthropic-version", "openai-organization", "x-custom")
LARGE = 1 << 30
VECTOR = (0.5, -0.25, 0.125, 1.0)


def error(status: int, message: str, code: str) -> web.Response:
    described = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response(
        {"type": "error", "error": described},
        status=status,
        headers={"X-Should-Retry": "false"},
    )


async def stream(
    request: web.Request, events: Iterable[answers.Json], *, done: bool = False, pause_s: float = 0
) -> web.StreamResponse:
    """Server-sent events, named by their type. ``done``: with OpenAI's last event."""
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Engine": "scripted"}
    )
    await response.prepare(request)
    try:
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            await response.write(f"{name}data: {json.dumps(event)}\n\n".encode())
            if pause_s:
                await asyncio.sleep(pause_s)

        if done:
            await response.write(b"data: [DONE]\n\n")
    except ConnectionError:
        pass  # the client has left
    return response


async def cut(request: web.Request) -> web.StreamResponse:
    """Half of an answer, after which the connection ends."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    if not (await request.json()).get("stream"):
        response.content_length = 100
    await response.prepare(request)
    await response.write(b"data: {}\n\n")
    assert request.transport is not None
    request.transport.close()
    return response


async def asked(request: web.Request, said: str, body: answers.Json) -> web.Response | str:
    """The text of the answer, or the error that the message asks for."""
    word, _, value = said.partition(":")
    if word == "status":
        return error(int(value), "as asked", "as_asked")
    if word == "bare":
        return web.Response(status=int(value))
    if word == "sleep":
        await asyncio.sleep(float(value))
    if word == "long":
        return "x" * int(value)
    if word == "pace":
        return "abcdefghij"
    if word == "body":
        return json.dumps(body, sort_keys=True)
    if word == "headers":
        return json.dumps({name: request.headers.get(name) for name in CLIENT_HEADERS})
    return f"pong {said}"


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    said = answers.text_of(body["messages"][-1])
    text = await asked(request, said, body)
    if isinstance(text, web.Response):
        return text
    if said == "cut":
        return await cut(request)
    if not body.get("stream"):
        return web.json_response(answers.chat(body, text), headers={"X-Engine": "scripted"})
    pause_s = float(said.removeprefix("pace:")) if said.startswith("pace:") else 0
    return await stream(request, answers.chat_chunks(body, text), done=True, pause_s=pause_s)


async def completions(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    if not body.get("stream"):
        return web.json_response(answers.completion(body))
    return await stream(request, answers.completion_chunks(body), done=True)


async def embeddings(request: web.Request) -> web.Response:
    body = await request.json()
    count = len(body["input"]) if isinstance(body["input"], list) else 1
    vector: Any = list(VECTOR)
    if body.get("encoding_format") == "base64":
        vector = base64.b64encode(struct.pack("<4f", *VECTOR)).decode()
    data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(count)]
    usage = {"prompt_tokens": 3 * count, "total_tokens": 3 * count}
    return web.json_response(
        {"object": "list", "model": body["model"], "data": data, "usage": usage}
    )


STORED: dict[str, answers.Json] = {}


async def responses(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    previous = body.get("previous_response_id")
    if previous and previous not in STORED:
        return error(404, "no such response", "response_not_found")

    response = answers.response(body, f"resp_{len(STORED)}")
    STORED[response["id"]] = response
    if not body.get("stream"):
        return web.json_response(response)
    return await stream(request, answers.response_events(response))


async def stored_response(request: web.Request) -> web.Response:
    """A stored response, its deletion, its cancellation or its input."""
    identifier = request.match_info["id"]
    response = STORED.get(identifier)
    if response is None:
        return error(404, "no such response", "response_not_found")
    if request.method == "DELETE":
        del STORED[identifier]
        return web.json_response({"id": identifier, "object": "response", "deleted": True})
    if request.path.endswith("/cancel"):
        return web.json_response(response | {"status": "cancelled"})
    if request.path.endswith("/input_items"):
        return web.json_response({"object": "list", "data": [], "has_more": False})
    return web.json_response(response)


async def messages(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    text = await asked(request, answers.text_of(body["messages"][-1]), body)
    if isinstance(text, web.Response):
        return text
    message = answers.message(body, text)
    if not body.get("stream"):
        return web.json_response(message, headers={"request-id": "req_engine"})
    return await stream(request, answers.message_events(message))


async def count_tokens(request: web.Request) -> web.Response:
    await request.json()
    return web.json_response({"input_tokens": 7})


async def transcriptions(request: web.Request) -> web.StreamResponse:
    form = await request.post()
    audio = form["file"]
    assert isinstance(audio, web.FileField)
    text = f"pong {audio.filename}, {len(audio.file.read())} bytes"
    if form.get("stream") == "true":
        deltas = [{"type": "transcript.text.delta", "delta": letter} for letter in "pong"]
        return await stream(request, [*deltas, {"type": "transcript.text.done", "text": "pong"}])
    if form.get("response_format") == "text":
        return web.Response(text=f"{text}\n")
    return web.json_response({"text": text, "fields": sorted(form)})


async def speech(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    response = web.StreamResponse(headers={"Content-Type": "audio/mpeg"})
    await response.prepare(request)
    for _ in range(10):
        await response.write(b"\xff" * 100 * len(body["input"]))
    return response


async def rerank(request: web.Request) -> web.Response:
    body = await request.json()
    results = [
        {"index": index, "relevance_score": 1 / (index + 1), "document": {"text": text}}
        for index, text in enumerate(body["documents"])
    ]
    return web.json_response(
        {"id": "rerank_1", "model": body["model"], "results": results[: body.get("top_n")]}
    )


async def models(request: web.Request) -> web.Response:
    """The model list, or one model, in OpenAI's form and in Anthropic's."""
    name = request.match_info.get("model", MODEL)
    if name != MODEL:
        return error(404, "no such model", "model_not_found")
    if "anthropic-version" in request.headers:
        model = {"id": MODEL, "type": "model", "display_name": MODEL}
        model |= {"created_at": "2023-11-14T22:13:20Z"}
        ends = {"has_more": False, "first_id": MODEL, "last_id": MODEL}
        return web.json_response(
            model if "model" in request.match_info else {"data": [model], **ends}
        )

    model = {"id": MODEL, "object": "model", "created": 1_700_000_000, "owned_by": "engine"}
    listing = {"object": "list", "data": [model]}
    return web.json_response(model if "model" in request.match_info else listing)


async def realtime(request: web.Request) -> web.WebSocketResponse:
    """OpenAI's realtime API for one text; without ``hello`` in the query, an echo."""
    socket = web.WebSocketResponse(max_msg_size=0, compress=False, protocols=("realtime",))
    await socket.prepare(request)
    if "hello" not in request.query:
        return await _echo(socket)

    session = {"id": "session_1", "object": "realtime.session", "model": MODEL}
    await socket.send_json({"type": "session.created", "event_id": "event_1", "session": session})
    async for message in socket:
        if json.loads(message.data)["type"] == "response.create":
            for event in answers.realtime_events():
                await socket.send_json(event)
    return socket


async def echo(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(max_msg_size=0, compress=False)
    await socket.prepare(request)
    return await _echo(socket)


async def _echo(socket: web.WebSocketResponse) -> web.WebSocketResponse:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket


async def event_source(request: web.Request) -> web.StreamResponse:
    """Three events, after which a client that returns with the last one is asked to stop."""
    if request.headers.get("Last-Event-ID") == "2":
        return web.Response(status=204)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b"retry: 50\n\n")
    for number in range(3):
        await response.write(f"id: {number}\ndata: event {number}\n\n".encode())
    return response


async def kernel_specs(_: web.Request) -> web.Response:
    spec = {"name": "python3", "spec": {"language": "python"}, "resources": {}}
    return web.json_response({"default": "python3", "kernelspecs": {"python3": spec}})


def _presented(request: web.Request) -> Iterator[str]:
    """The credentials of the request."""
    yield request.headers.get("x-api-key", "")
    yield request.headers.get("Authorization", "").rpartition(" ")[2]
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        yield protocol.strip().removeprefix("openai-insecure-api-key.")


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guard(keys: frozenset[str]) -> Any:
    """The refusal of other keys and other models, and an identifier for each request."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith("/v1/"):
            if not keys.intersection(_presented(request)):
                return error(401, "invalid key", "invalid_api_key")
            try:
                return await _named(request) or await handler(request)
            except json.JSONDecodeError:
                return error(400, "not JSON", "invalid_json")

        return await handler(request)

    return guarded


async def _named(request: web.Request) -> web.Response | None:
    """The refusal of a body that names another model."""
    has_json = request.content_type == "application/json" and request.can_read_body
    if has_json and (await request.json()).get("model", MODEL) != MODEL:
        return error(404, "no such model", "model_not_found")
    return None


async def identify(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.setdefault("x-request-id", "req_1")
    response.headers.setdefault("request-id", "req_1")


def application(keys: frozenset[str]) -> web.Application:
    app = web.Application(client_max_size=LARGE, middlewares=[guard(keys)])
    app.on_response_prepare.append(identify)
    app.add_routes(
        [
            web.post("/v1/chat/completions", chat),
            web.post("/v1/completions", completions),
            web.post("/v1/embeddings", embeddings),
            web.post("/v1/responses", responses),
            web.get("/v1/responses/{id}", stored_response),
            web.delete("/v1/responses/{id}", stored_response),
            web.post("/v1/responses/{id}/cancel", stored_response),
            web.get("/v1/responses/{id}/input_items", stored_response),
            web.post("/v1/messages", messages),
            web.post("/v1/messages/count_tokens", count_tokens),
            web.post("/v1/audio/transcriptions", transcriptions),
            web.post("/v1/audio/translations", transcriptions),
            web.post("/v1/audio/speech", speech),
            web.post("/v1/rerank", rerank),
            web.post("/rerank", rerank),
            web.get("/v1/models", models),
            web.get("/v1/models/{model}", models),
            web.get("/v1/realtime", realtime),
            # The app of a service port.
            web.get("/echo", echo),
            web.get("/events", event_source),
            web.get("/api/kernelspecs", kernel_specs),
        ]
    )
    return app


async def serve(keys: frozenset[str]) -> None:
    runner = web.AppRunner(application(keys))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(frozenset(sys.argv[1:])))
