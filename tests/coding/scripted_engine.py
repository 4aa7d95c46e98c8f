"""Engine that streams one answer over Anthropic's messages API and OpenAI's responses API, and
records its requests.

Tokens: 7 in the prompt, 3 in the answer.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from aiohttp import web


def facts(request: web.Request, body: dict[str, Any]) -> str:
    """The client's output, in a form that a test can read."""
    told = {
        "model": body["model"],
        "tools": len(body.get("tools", [])),
        "max_tokens": body.get("max_tokens"),
        "query": request.query_string,
        "attribution": "x-anthropic-billing-header" in json.dumps(body),
    }
    return "pong " + json.dumps(told)


async def send(request: web.Request, events: list[dict[str, Any]]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return response


async def messages(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 1},
    }
    text = {"type": "text_delta", "text": facts(request, body)}
    end = {"stop_reason": "end_turn", "stop_sequence": None}

    return await send(
        request,
        [
            {"type": "message_start", "message": message},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            {"type": "content_block_delta", "index": 0, "delta": text},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ],
    )


async def responses(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    answer = {"id": "resp_1", "object": "response", "model": body["model"], "status": "in_progress"}
    text = facts(request, body)
    item = {"id": "item_1", "type": "message", "role": "assistant"}
    content = [{"type": "output_text", "text": text, "annotations": []}]
    usage = {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 10,
    }
    done = item | {"status": "completed", "content": content}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": answer},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        {
            "type": "response.output_text.delta",
            "output_index": 0,
            "item_id": "item_1",
            "delta": text,
        },
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {
            "type": "response.completed",
            "response": answer | {"status": "completed", "output": [done], "usage": usage},
        },
    ]

    return await send(request, [event | {"sequence_number": n} for n, event in enumerate(events)])


async def health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


app = web.Application(client_max_size=64 * 1024 * 1024)
app.add_routes(
    [
        web.get("/health", health),
        web.post("/v1/messages", messages),
        web.post("/v1/responses", responses),
    ]
)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
