"""A scripted engine: OpenAI's and Anthropic's APIs as client libraries use them, with tool calls,
audio and WebSockets, which a model with random weights does not offer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import WSMsgType, web
from proxy_harness import DONE, ENGINE_KEY, SSE

WORDS = ("Guides", " lines", " — é")
TEXT = "".join(WORDS)
ARGUMENTS = '{"city": "Brno"}'
AUDIO = bytes(range(256)) * 64
VECTOR = [0.5, -1.0]


class ScriptedEngine:
    """``requests``: the paths of the answered requests. ``pause_s``: the pause between two events
    of a stream."""

    def __init__(self, name: str = "k", pause_s: float = 0.0) -> None:
        self.name = name
        self.pause_s = pause_s
        self.requests: list[str] = []
        self.stored: dict[str, dict[str, Any]] = {}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {ENGINE_KEY}":
            return web.json_response({"error": "Unauthorized"}, status=401)

        self.requests.append(f"{request.method} {request.path}")
        if request.path == "/v1/realtime":
            return await self._realtime(request)
        if request.path.startswith("/v1/responses/"):
            return self._stored(request)

        if request.path == "/v1/audio/transcriptions":
            form = await request.post()
            upload = form["file"]
            model = form["model"]
            assert isinstance(upload, web.FileField)
            assert isinstance(model, str)

            return web.json_response({"text": f"{model} heard {len(upload.file.read())} bytes"})

        given = await request.json()
        match request.path:
            case "/v1/chat/completions":
                return await self._chat(request, given)
            case "/v1/embeddings":
                return self._embeddings(given)
            case "/v1/audio/speech":
                return web.Response(body=AUDIO, content_type="audio/wav")
            case "/v1/responses":
                return await self._response(request, given)
            case "/v1/messages":
                return await self._message(request, given)
            case "/v1/messages/count_tokens":
                return web.json_response({"input_tokens": len(given["messages"])})

        return web.json_response({"error": {"message": "no such path"}}, status=404)

    async def _stream(
        self, request: web.Request, events: list[dict[str, Any]], *, named: bool, done: bool = False
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers=SSE)
        await stream.prepare(request)
        for event in events:
            line = f"event: {event['type']}\n" if named else ""
            await stream.write(f"{line}data: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(self.pause_s)

        if done:
            await stream.write(DONE)

        return stream

    async def _chat(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        base = {"id": "chatcmpl-1", "created": 1, "model": given["model"]}
        call = (
            {"name": given["tools"][0]["function"]["name"], "arguments": ARGUMENTS}
            if given.get("tools")
            else None
        )
        if given.get("stream"):
            deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
            if call:
                first = {
                    "index": 0,
                    "id": "call_1",
                    "type": "function",
                    "function": call | {"arguments": ""},
                }
                parts = [
                    {"index": 0, "function": {"arguments": part}}
                    for part in (ARGUMENTS[:5], ARGUMENTS[5:])
                ]
                deltas += [{"tool_calls": [part]} for part in (first, *parts)]
            else:
                deltas += [{"content": word} for word in WORDS]

            choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
            choices.append(
                {"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}
            )
            chunks = [
                base | {"object": "chat.completion.chunk", "choices": [choice]}
                for choice in choices
            ]
            return await self._stream(request, chunks, named=False, done=True)

        message: dict[str, Any] = {"role": "assistant", "content": None if call else TEXT}
        if call:
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": call}]

        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}
        usage = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
        return web.json_response(
            base | {"object": "chat.completion", "choices": [choice], "usage": usage}
        )

    def _embeddings(self, given: dict[str, Any]) -> web.Response:
        data = [{"object": "embedding", "index": 0, "embedding": VECTOR}]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response(
            {"object": "list", "model": given["model"], "data": data, "usage": usage}
        )

    async def _response(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        name = f"resp_{self.name}_{len(self.stored)}"
        text = {"type": "output_text", "text": TEXT, "annotations": []}
        item = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
        made: dict[str, Any] = {
            "id": name,
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": given["model"],
            "output": [item],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "previous_response_id": given.get("previous_response_id"),
            "usage": {
                "input_tokens": 2,
                "output_tokens": 3,
                "total_tokens": 5,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }
        self.stored[name] = made
        if not given.get("stream"):
            return web.json_response(made)

        begun = made | {"status": "in_progress", "output": [], "usage": None}
        events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        opened = item | {"status": "in_progress", "content": []}
        events.append({"type": "response.output_item.added", "output_index": 0, "item": opened})
        where = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
        events.append({"type": "response.content_part.added", "part": text | {"text": ""}} | where)
        events += [{"type": "response.output_text.delta", "delta": word} | where for word in WORDS]
        events.append({"type": "response.completed", "response": made})
        numbered = [event | {"sequence_number": number} for number, event in enumerate(events)]

        return await self._stream(request, numbered, named=True)

    def _stored(self, request: web.Request) -> web.Response:
        _, _, _, name, *rest = request.path.split("/")
        if (found := self.stored.get(name)) is None:
            return web.json_response({"error": {"message": "not here"}}, status=404)

        if rest == ["input_items"]:
            return web.json_response(
                {"object": "list", "data": [], "first_id": "", "last_id": "", "has_more": False}
            )

        if rest == ["cancel"]:
            found["status"] = "cancelled"
        if request.method == "DELETE":
            del self.stored[name]
            return web.json_response({"id": name, "object": "response", "deleted": True})

        return web.json_response(found)

    async def _message(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        call = given["tools"][0]["name"] if given.get("tools") else None
        block = (
            {"type": "tool_use", "id": "toolu_1", "name": call, "input": json.loads(ARGUMENTS)}
            if call
            else {"type": "text", "text": TEXT}
        )
        reason = "tool_use" if call else "end_turn"
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": given["model"],
            "content": [block],
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 2, "output_tokens": 3},
        }
        if not given.get("stream"):
            return web.json_response(message)

        begun = message | {
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 2, "output_tokens": 0},
        }
        empty = block | ({"input": {}} if call else {"text": ""})
        parts = [
            {"type": "input_json_delta", "partial_json": part}
            for part in (ARGUMENTS[:5], ARGUMENTS[5:])
        ]
        deltas = parts if call else [{"type": "text_delta", "text": word} for word in WORDS]
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": None},
                "usage": {"output_tokens": 3},
            },
            {"type": "message_stop"},
        ]

        return await self._stream(request, events, named=True)

    async def _realtime(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        session = {"type": "realtime", "model": request.query["model"]}
        await socket.send_json({"type": "session.created", "event_id": "e1", "session": session})

        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                break

            event = json.loads(message.data)
            if event["type"] == "input_audio_buffer.append":
                text = f"{len(event['audio'])} characters of audio"
                done = {"type": "response.output_text.done", "event_id": "e2", "text": text}
                where = {"item_id": "i", "response_id": "r", "output_index": 0, "content_index": 0}
                await socket.send_json(done | where)

        return socket
