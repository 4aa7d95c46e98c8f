"""OpenAI's client for Python, in two majors: ``python -m tests.clients.openai_python PLACES``."""

from __future__ import annotations

import asyncio
import io
import json
from functools import cache
from typing import Any

import openai
from pydantic import BaseModel

from tests.clients.checks import Checks, Place, run

checks = Checks("openai")
HELLO: Any = [{"role": "user", "content": "hello"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "parameters": PARAMETERS, "strict": True}
TOOLS: Any = [{"type": "function", "function": FUNCTION}]


class Person(BaseModel):
    name: str
    age: int


@cache
def client(place: Place, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=place.v1, **{"api_key": place.key, "max_retries": 0, "timeout": 30} | options
    )


def asynchronous(place: Place, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=place.v1, api_key=place.key, max_retries=0, timeout=30, **options
    )


def say(place: Place, text: str, **options: Any) -> Any:
    message = {"role": "user", "content": text}
    return client(place).chat.completions.create(model=place.model, messages=[message], **options)


@checks
def chat(place: Place) -> Any:
    raw = client(place).chat.completions.with_raw_response.create(model=place.model, messages=HELLO)
    parsed = raw.parse()
    identified = "x-request-id" in raw.headers
    return [parsed.to_dict(), raw.headers.get("x-engine"), identified]


@checks
def chat_stream(place: Place) -> Any:
    chunks = say(place, "hello", stream=True, stream_options={"include_usage": True})
    return [chunk.to_dict() for chunk in chunks]


@checks
def chat_stream_abandoned(place: Place) -> Any:
    with say(place, "pace:0.05", stream=True) as chunks:
        return [next(iter(chunks)).id, say(place, "again").choices[0].message.content]


@checks
def chat_tool_stream(place: Place) -> Any:
    with client(place).chat.completions.stream(
        model=place.model, messages=HELLO, tools=TOOLS
    ) as stream:
        [call] = stream.get_final_completion().choices[0].message.tool_calls
    return call.function.parsed_arguments


@checks
def chat_parse(place: Place) -> Any:
    parsed = client(place).chat.completions.parse(
        model=place.model, messages=HELLO, response_format=Person
    )
    return parsed.choices[0].message.parsed.model_dump()


@checks
def chat_of_5_MB(place: Place) -> Any:
    return len(say(place, "y" * 5_000_000).choices[0].message.content)


@checks
def chat_stream_of_3_MB(place: Place) -> Any:
    chunks = say(place, "long:3000000", stream=True)
    return sum(len(chunk.choices[0].delta.content or "") for chunk in chunks)


@checks
def body_unchanged(place: Place) -> Any:
    # The numbers do not survive a conversion to double, nor to another notation.
    extra = {"nested": {"model": "other"}, "big": 12345678901234567890, "f": 1e-7, "ünï": "✓"}
    return json.loads(say(place, "body", extra_body=extra).choices[0].message.content)


@checks
def headers_unchanged(place: Place) -> Any:
    headers = {"X-Custom": "1", "OpenAI-Organization": "org"}
    answer = say(place, "headers", extra_headers=headers, extra_query={"q": "1"})
    return json.loads(answer.choices[0].message.content)


@checks
async def fifty_at_once(place: Place) -> Any:
    async with asynchronous(place) as many:
        asked = (
            many.chat.completions.create(
                model=place.model, messages=[{"role": "user", "content": f"number {number}"}]
            )
            for number in range(50)
        )
        return [answer.choices[0].message.content for answer in await asyncio.gather(*asked)]


@checks
async def aiohttp_transport(place: Place) -> Any:
    async with asynchronous(place, http_client=openai.DefaultAioHttpClient()) as one:
        answer = await one.chat.completions.create(model=place.model, messages=HELLO)
        return answer.choices[0].message.content


@checks
def error_400(place: Place) -> Any:
    say(place, "status:400")


@checks
def error_429(place: Place) -> Any:
    say(place, "status:429")


@checks
def error_500(place: Place) -> Any:
    say(place, "status:500")


@checks
def timeout(place: Place) -> Any:
    client(place, timeout=0.5).chat.completions.create(
        model=place.model, messages=[{"role": "user", "content": "sleep:3"}]
    )


@checks
def wrong_key(place: Place) -> Any:
    client(place, api_key="sk-wrong").chat.completions.create(model=place.model, messages=HELLO)


@checks
def unknown_model(place: Place) -> Any:
    client(place).chat.completions.create(model="nothing", messages=HELLO)


@checks
def models(place: Place) -> Any:
    found = client(place).models
    return [[model.id for model in found.list()], found.retrieve(place.model).id]


@checks
def completions(place: Place) -> Any:
    answer = client(place).completions.create(model=place.model, prompt=["a", "b"])
    chunks = client(place).completions.create(model=place.model, prompt="a", stream=True)
    return [answer.to_dict(), [chunk.to_dict() for chunk in chunks]]


@checks
def embeddings(place: Place) -> Any:
    return client(place).embeddings.create(model=place.model, input=["a", "b"]).to_dict()


@checks
def responses(place: Place) -> Any:
    answer = client(place).responses.create(model=place.model, input="hello")
    return [answer.output_text, answer.usage.to_dict()]


@checks
def responses_parse(place: Place) -> Any:
    answer = client(place).responses.parse(model=place.model, input="hello", text_format=Person)
    return answer.output_parsed.model_dump()


@checks
def responses_stream(place: Place) -> Any:
    with client(place).responses.stream(model=place.model, input="hello") as stream:
        kinds = [event.type for event in stream]
        return [kinds, stream.get_final_response().output_text]


@checks
def responses_stored(place: Place) -> Any:
    calls = client(place).responses
    first = calls.create(model=place.model, input="hello", store=True)
    found = calls.retrieve(first.id)
    items = calls.input_items.list(first.id)
    cancelled = calls.cancel(first.id)
    second = calls.create(model=place.model, input="more", previous_response_id=first.id)
    calls.delete(first.id)
    follows = second.previous_response_id == first.id
    return [found.id == first.id, len(items.data), cancelled.status, follows]


@checks
def transcription_of_3_MB(place: Place) -> Any:
    file = ("Ünï söund.wav", io.BytesIO(b"x" * 3_000_000))
    answer = client(place).audio.transcriptions.create(
        model=place.model, file=file, timestamp_granularities=["word"]
    )
    return answer.to_dict()


@checks
def transcription_as_text(place: Place) -> Any:
    file = ("a.wav", io.BytesIO(b"x" * 10))
    return client(place).audio.transcriptions.create(
        model=place.model, file=file, response_format="text"
    )


@checks
def transcription_stream(place: Place) -> Any:
    events = client(place).audio.transcriptions.create(
        model=place.model, file=("a.wav", io.BytesIO(b"x" * 10)), stream=True
    )
    return [event.type for event in events]


@checks
def translation(place: Place) -> Any:
    file = ("a.wav", io.BytesIO(b"x" * 10))
    return client(place).audio.translations.create(model=place.model, file=file).text


@checks
def speech_stream(place: Place) -> Any:
    with client(place).audio.speech.with_streaming_response.create(
        model=place.model, voice="alloy", input="hello"
    ) as answer:
        return sum(map(len, answer.iter_bytes()))


@checks
async def realtime(place: Place) -> Any:
    async with (
        asynchronous(place, websocket_base_url=f"{place.websocket}/v1") as one,
        one.realtime.connect(model=place.model, extra_query={"hello": "1"}) as connection,
    ):
        await connection.response.create()
        kinds = []
        async for event in connection:
            kinds.append(event.type)
            if event.type == "response.done":
                break
        return kinds


if __name__ == "__main__":
    run(checks)
