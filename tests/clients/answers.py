"""Answers of the scripted engine, in the forms of OpenAI and Anthropic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
CREATED = 1_700_000_000
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
# The largest piece of a streamed text: a character, until that would be too many events.
PIECES = 5000


def text_of(message: Json) -> str:
    """The text of a message; "" if it only contains other parts, such as the result of a tool."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return " ".join(part["text"] for part in content or [] if "text" in part)


def pieces(text: str) -> Iterator[str]:
    size = 1 + len(text) // PIECES
    for at in range(0, len(text), size):
        yield text[at : at + size]


def example(schema: Json, definitions: Json | None = None) -> Any:
    """A value that a JSON schema allows."""
    known = definitions or schema.get("$defs", {})
    if "$ref" in schema:
        return example(known[schema["$ref"].rpartition("/")[2]], known)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], known)
    kind = schema.get("type", "object")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: example(each, known) for name, each in properties.items()}
    if kind == "array":
        return [example(schema["items"], known)]
    return {"string": "pong", "integer": 7, "number": 7.5, "boolean": True}.get(kind)


# ---- OpenAI: chat ----


def _call(body: Json) -> Json | None:
    """The tool call that answers the body: its first tool, unless the tool has been called."""
    tools = body.get("tools")
    if not tools or body["messages"][-1]["role"] != "user":
        return None
    function = tools[0]["function"]
    arguments = json.dumps(example(function.get("parameters", {})))
    described = {"name": function["name"], "arguments": arguments}
    return {"id": "call_1", "type": "function", "function": described}


def _formed(body: Json, text: str) -> str:
    form = body.get("response_format") or {}
    return json.dumps(example(form["json_schema"]["schema"])) if "json_schema" in form else text


def _chat(body: Json, kind: str) -> Json:
    return {"id": "chatcmpl-1", "object": kind, "created": CREATED, "model": body["model"]}


def chat(body: Json, text: str) -> Json:
    call = _call(body)
    message: Json = {"role": "assistant", "content": None if call else _formed(body, text)}
    if call:
        message["tool_calls"] = [call]

    reason = "tool_calls" if call else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return _chat(body, "chat.completion") | {"choices": [choice], "usage": USAGE}


def chat_chunks(body: Json, text: str) -> Iterator[Json]:
    base = _chat(body, "chat.completion.chunk")

    def chunk(delta: Json, reason: str | None = None) -> Json:
        return base | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    call = _call(body)
    if call:
        function = call["function"]
        opened = call | {"index": 0, "function": function | {"arguments": ""}}
        yield chunk({"tool_calls": [opened]})
        for letter in function["arguments"]:
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": letter}}]})
    else:
        for piece in pieces(_formed(body, text)):
            yield chunk({"content": piece})

    yield chunk({}, "tool_calls" if call else "stop")
    if (body.get("stream_options") or {}).get("include_usage"):
        yield base | {"choices": [], "usage": USAGE}


# ---- OpenAI: completions ----


def _completion(body: Json, choices: list[Json]) -> Json:
    base = {"id": "cmpl-1", "object": "text_completion", "created": CREATED}
    return base | {"model": body["model"], "choices": choices}


def completion(body: Json) -> Json:
    prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
    choices = [
        {"index": index, "text": f" pong {prompt}", "finish_reason": "stop", "logprobs": None}
        for index, prompt in enumerate(prompts)
    ]
    return _completion(body, choices) | {"usage": USAGE}


def completion_chunks(body: Json) -> Iterator[Json]:
    for letter in " pong":
        yield _completion(body, [{"index": 0, "text": letter, "finish_reason": None}])
    yield _completion(body, [{"index": 0, "text": "", "finish_reason": "stop"}])


# ---- OpenAI: responses and realtime ----

RESPONSE_USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 10,
}


def _item(body: Json) -> Json:
    """The message or the tool call that answers the body."""
    given = body["input"]
    last = given[-1] if isinstance(given, list) else {"content": given}
    functions = [tool for tool in body.get("tools", []) if tool["type"] == "function"]
    if functions and "content" in last:
        arguments = json.dumps(example(functions[0].get("parameters", {})))
        call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "status": "completed"}
        return call | {"name": functions[0]["name"], "arguments": arguments}

    form = (body.get("text") or {}).get("format") or {}
    text = json.dumps(example(form["schema"])) if "schema" in form else f"pong {text_of(last)}"
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    return message | {"content": content}


def response(body: Json, identifier: str) -> Json:
    asked = {name: body.get(name) for name in ("model", "instructions", "previous_response_id")}
    return asked | {
        "id": identifier,
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "metadata": body.get("metadata") or {},
        "output": [_item(body)],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "top_p": 1.0,
        "usage": RESPONSE_USAGE,
    }


def response_events(done: Json) -> Iterator[Json]:
    started = done | {"status": "in_progress", "output": [], "usage": None}
    [item] = done["output"]
    events = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
        *(_message_item(item) if item["type"] == "message" else _call_item(item)),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]
    for number, event in enumerate(events):
        yield event | {"sequence_number": number}


def _message_item(item: Json) -> Iterator[Json]:
    where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    [part] = item["content"]
    opened = item | {"content": [], "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": 0, "item": opened}
    yield {"type": "response.content_part.added", **where, "part": part | {"text": ""}}
    for piece in pieces(part["text"]):
        yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}


def _call_item(item: Json) -> Iterator[Json]:
    where = {"item_id": item["id"], "output_index": 0}
    arguments = item["arguments"]
    opened = item | {"arguments": "", "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": 0, "item": opened}
    yield {"type": "response.function_call_arguments.delta", **where, "delta": arguments}
    done = {"name": item["name"], "arguments": arguments}
    yield {"type": "response.function_call_arguments.done", **where, **done}


def realtime_events() -> Iterator[Json]:
    where = {"response_id": "resp_1", "item_id": "item_1", "output_index": 0, "content_index": 0}
    for number, letter in enumerate("pong"):
        event = {"type": "response.output_text.delta", "event_id": f"delta_{number}"}
        yield event | where | {"delta": letter}
    usage = {"total_tokens": 10, "input_tokens": 7, "output_tokens": 3}
    done = {"id": "resp_1", "object": "realtime.response", "status": "completed", "usage": usage}
    yield {"type": "response.done", "event_id": "done_1", "response": done}


# ---- Anthropic ----


def message(body: Json, text: str) -> Json:
    last = body["messages"][-1]
    returned = isinstance(last["content"], list) and last["content"][-1]["type"] == "tool_result"
    content: Json = {"type": "text", "text": text}
    if body.get("tools") and not returned:
        tool = body["tools"][0]
        content = {"type": "tool_use", "id": "toolu_1", "name": tool["name"]}
        content["input"] = example(tool["input_schema"])

    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [content],
        "stop_reason": "tool_use" if content["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }


def message_events(done: Json) -> Iterator[Json]:
    [content] = done["content"]
    started = {"content": [], "stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 1}}
    yield {"type": "message_start", "message": done | started}
    yield {"type": "ping"}
    is_text = content["type"] == "text"
    empty = {"text": ""} if is_text else {"input": {}}
    yield {"type": "content_block_start", "index": 0, "content_block": content | empty}
    for piece in pieces(content["text"] if is_text else json.dumps(content["input"])):
        delta = (
            {"type": "text_delta", "text": piece}
            if is_text
            else {"type": "input_json_delta", "partial_json": piece}
        )
        yield {"type": "content_block_delta", "index": 0, "delta": delta}

    yield {"type": "content_block_stop", "index": 0}
    end = {"stop_reason": done["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}}
    yield {"type": "message_stop"}
