"""Anthropic's client for Python: ``python -m tests.clients.anthropic_python PLACES``."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import anthropic

from tests.clients.checks import Checks, Place, run

checks = Checks("anthropic")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: Any = [{"name": "weather", "input_schema": SCHEMA}]


@cache
def client(place: Place, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=place.base, **{"api_key": place.key, "max_retries": 0, "timeout": 30} | options
    )


def asking(place: Place, text: str = "hello", **options: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": place.model, "max_tokens": 9, "messages": messages} | options


@checks
def messages(place: Place) -> Any:
    raw = client(place).messages.with_raw_response.create(**asking(place))
    return [raw.parse().to_dict(), "request-id" in raw.headers]


@checks
def messages_stream(place: Place) -> Any:
    with client(place).messages.stream(**asking(place)) as stream:
        return ["".join(stream.text_stream), stream.get_final_message().to_dict()]


@checks
def tool(place: Place) -> Any:
    return client(place).messages.create(**asking(place, tools=TOOLS)).content[0].to_dict()


@checks
def tool_stream(place: Place) -> Any:
    with client(place).messages.stream(**asking(place, tools=TOOLS)) as stream:
        return stream.get_final_message().content[0].to_dict()


@checks
def tool_result(place: Place) -> Any:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    talk = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    return client(place).messages.create(**asking(place, tools=TOOLS, messages=talk)).stop_reason


@checks
def count_tokens(place: Place) -> Any:
    body = asking(place)
    del body["max_tokens"]
    return client(place).messages.count_tokens(**body).input_tokens


@checks
def models(place: Place) -> Any:
    found = client(place).models
    model = found.retrieve(place.model)
    listed = [each.id for each in found.list(limit=1)]
    return [model.id, model.type, type(model.created_at).__name__, listed]


@checks
def beta_headers(place: Place) -> Any:
    answer = client(place).beta.messages.create(**asking(place, "headers", betas=["x-2025"]))
    return json.loads(answer.content[0].text)


@checks
def authorization_as_bearer(place: Place) -> Any:
    one = client(place, api_key=None, auth_token=place.key)
    return one.messages.create(**asking(place)).content[0].text


@checks
def error_400(place: Place) -> Any:
    client(place).messages.create(**asking(place, "status:400"))


@checks
def error_529(place: Place) -> Any:
    client(place).messages.create(**asking(place, "status:529"))


@checks
def wrong_key(place: Place) -> Any:
    client(place, api_key="wrong").messages.create(**asking(place))


@checks
def unknown_model(place: Place) -> Any:
    client(place).messages.create(**asking(place, model="nothing"))


if __name__ == "__main__":
    run(checks)
