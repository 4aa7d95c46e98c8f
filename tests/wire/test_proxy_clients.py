"""OpenAI's and Anthropic's Python clients, sync and async, through every data plane to a scripted
engine."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anthropic
import openai
import pytest
from proxy_harness import KEY, Client, serving_one
from scripted_engine import ARGUMENTS, AUDIO, TEXT, VECTOR, WORDS, ScriptedEngine

T = TypeVar("T")
ASK: list[Any] = [{"role": "user", "content": "Where?"}]
TOOL = {"name": "weather", "description": "of a city"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
OPENAI_TOOLS: list[Any] = [{"type": "function", "function": TOOL | {"parameters": SCHEMA}}]
ANTHROPIC_TOOLS: list[Any] = [TOOL | {"input_schema": SCHEMA}]


@pytest.fixture(params=["asyncio", "simple"])
def plane(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def open_ai(client: Client, key: str = KEY) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{client.url}/v1", api_key=key, max_retries=0) as ai:
        yield ai


@asynccontextmanager
async def claude(client: Client, key: str = KEY) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=client.url, api_key=key, max_retries=0) as ai:
        yield ai


async def test_openai_chat_embeddings_and_audio(tmp_path, plane):
    async with (
        serving_one(tmp_path, ScriptedEngine().serve, plane=plane) as client,
        open_ai(client) as ai,
    ):
        chat = ai.chat.completions
        whole = await chat.create(model="tiny", messages=ASK)
        assert whole.choices[0].message.content == TEXT
        called = await chat.create(model="tiny", messages=ASK, tools=OPENAI_TOOLS)
        [call] = called.choices[0].message.tool_calls
        assert (call.function.name, call.function.arguments) == ("weather", ARGUMENTS)
        async with chat.stream(model="tiny", messages=ASK, tools=OPENAI_TOOLS) as stream:
            final = await stream.get_final_completion()

        assert final.choices[0].message.tool_calls[0].function.arguments == ARGUMENTS
        stream = await chat.create(model="tiny", messages=ASK, stream=True)
        assert [c.choices[0].delta.content or "" async for c in stream] == ["", *WORDS, ""]
        vectors = await ai.embeddings.create(model="tiny", input="x", encoding_format="float")
        assert vectors.data[0].embedding == VECTOR
        heard = await ai.audio.transcriptions.create(model="tiny", file=("a.wav", AUDIO))
        assert heard.text == f"tiny heard {len(AUDIO)} bytes"
        speech = await ai.audio.speech.create(model="tiny", voice="alloy", input="hello")
        assert speech.content == AUDIO


async def test_openai_responses(tmp_path, plane):
    async with (
        serving_one(tmp_path, ScriptedEngine().serve, plane=plane) as client,
        open_ai(client) as ai,
    ):
        made = await ai.responses.create(model="tiny", input="hello")
        assert made.output_text == TEXT
        async with ai.responses.stream(
            model="tiny", input="on", previous_response_id=made.id
        ) as stream:
            followed = await stream.get_final_response()

        assert (followed.output_text, followed.previous_response_id) == (TEXT, made.id)
        assert (await ai.responses.retrieve(followed.id)).output_text == TEXT
        assert [item async for item in await ai.responses.input_items.list(made.id)] == []
        assert (await ai.responses.cancel(made.id)).status == "cancelled"
        await ai.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await ai.responses.retrieve("resp_other")


async def test_openai_realtime(tmp_path, plane):
    async with (
        serving_one(tmp_path, ScriptedEngine().serve, plane=plane) as client,
        open_ai(client) as ai,
    ):
        async with ai.realtime.connect(model="tiny") as connection:
            assert (await connection.recv()).session.model == "tiny"
            audio = base64.b64encode(AUDIO).decode()
            await connection.input_audio_buffer.append(audio=audio)
            assert (await connection.recv()).text == f"{len(audio)} characters of audio"

        with pytest.raises(Exception, match="404"):
            async with ai.realtime.connect(model="nope"):
                pass


async def test_anthropic_client(tmp_path, plane):
    async with (
        serving_one(tmp_path, ScriptedEngine().serve, plane=plane) as client,
        claude(client) as ai,
    ):
        ask = {"model": "tiny", "max_tokens": 9, "messages": ASK}
        assert (await ai.messages.create(**ask)).content[0].text == TEXT
        async with ai.messages.stream(**ask) as stream:
            assert [word async for word in stream.text_stream] == list(WORDS)
            assert (await stream.get_final_message()).usage.output_tokens == 3

        called = await ai.messages.create(**ask, tools=ANTHROPIC_TOOLS)
        assert (called.stop_reason, called.content[0].input) == ("tool_use", {"city": "Brno"})
        async with ai.messages.stream(**ask, tools=ANTHROPIC_TOOLS) as stream:
            assert (await stream.get_final_message()).content[0].input == {"city": "Brno"}

        assert (await ai.messages.count_tokens(model="tiny", messages=ASK)).input_tokens == 1
        assert [(model.id, model.display_name) async for model in ai.models.list(limit=1)] == [
            ("tiny", "tiny")
        ]
        assert (await ai.models.retrieve("tiny")).type == "model"


async def test_anthropic_client_raises_typed_errors(tmp_path, plane):
    async with (
        serving_one(tmp_path, ScriptedEngine().serve, plane=plane) as client,
        claude(client) as ai,
        claude(client, "wrong") as stranger,
    ):
        for call in (
            ai.messages.create(model="nope", max_tokens=9, messages=ASK),
            ai.models.retrieve("nope"),
        ):
            with pytest.raises(anthropic.NotFoundError) as unknown:
                await call
            assert unknown.value.type == "not_found_error"

        with pytest.raises(anthropic.AuthenticationError) as rejected:
            await stranger.models.list()

        assert rejected.value.type == "authentication_error"


async def test_clients_without_asyncio(tmp_path, plane):
    def use_openai(url: str) -> tuple[str, list[str]]:
        with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as ai:
            with ai.chat.completions.create(model="tiny", messages=ASK, stream=True) as stream:
                words = [chunk.choices[0].delta.content or "" for chunk in stream]
            with ai.realtime.connect(model="tiny") as connection:
                assert connection.recv().type == "session.created"
            made = ai.responses.create(model="tiny", input="hello")
            return ai.responses.retrieve(made.id).output_text, words

    def use_anthropic(url: str) -> list[str]:
        with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as ai:
            assert [model.id for model in ai.models.list()] == ["tiny"]
            with ai.messages.stream(model="tiny", max_tokens=9, messages=ASK) as stream:
                return list(stream.text_stream)

    async with serving_one(tmp_path, ScriptedEngine().serve, plane=plane) as client:
        assert await asyncio.to_thread(use_openai, client.url) == (TEXT, ["", *WORDS, ""])
        assert await asyncio.to_thread(use_anthropic, client.url) == list(WORDS)
