"""OpenAI's Python client against the proxy, with a minimal OpenAI-compatible engine behind it."""

from __future__ import annotations

import openai
import pytest
from aiohttp import web
from proxy_harness import DONE, ENGINE_KEY, KEY, Client, event, serving_one, stream_of

CHUNKS = ("Guides", " lines", " — é")


async def minimal_engine(request: web.Request) -> web.StreamResponse:
    """Completes chats in OpenAI's format. Requires its key."""
    if request.headers.get("Authorization") != f"Bearer {ENGINE_KEY}":
        return web.json_response({"error": "Unauthorized"}, status=401)

    payload = await request.json()
    if request.path == "/v1/embeddings":
        return web.json_response(
            {
                "object": "list",
                "model": payload["model"],
                "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}],
                "usage": {"prompt_tokens": 1, "total_tokens": 1},
            }
        )

    if not payload["messages"]:
        error = {"message": "no messages", "type": "BadRequestError", "param": None, "code": 400}
        return web.json_response({"error": error}, status=400)
    if payload.get("stream"):
        return await stream_of(request, *(event(text) for text in CHUNKS), DONE)

    message = {"role": "assistant", "content": "".join(CHUNKS)}
    return web.json_response(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": payload["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4},
        }
    )


def openai_client(client: Client, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=client.url + "/v1", api_key=key, max_retries=0)


MESSAGES = [{"role": "user", "content": "What is a moorage?"}]


async def test_openai_client_works(tmp_path):
    async with serving_one(tmp_path, minimal_engine) as client, openai_client(client) as ai:
        assert [model.id async for model in ai.models.list()] == ["tiny"]
        assert (await ai.models.retrieve("tiny")).owned_by == "moorage"
        whole = await ai.chat.completions.create(model="tiny", messages=MESSAGES)
        assert whole.choices[0].message.content == "".join(CHUNKS)
        stream = await ai.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        assert [chunk.choices[0].delta.content async for chunk in stream] == list(CHUNKS)
        vectors = await ai.embeddings.create(model="tiny", input="x", encoding_format="float")
        assert vectors.data[0].embedding == [0.5, 1.0]


async def test_openai_client_raises_typed_errors(tmp_path):
    async with (
        serving_one(tmp_path, minimal_engine) as client,
        openai_client(client) as ai,
        openai_client(client, "wrong") as stranger,
    ):
        with pytest.raises(openai.NotFoundError) as unknown:
            await ai.chat.completions.create(model="nope", messages=MESSAGES)

        assert unknown.value.code == "model_not_found"
        assert unknown.value.param == "model"
        with pytest.raises(openai.AuthenticationError) as rejected:
            await stranger.models.list()

        assert rejected.value.code == "invalid_api_key"
        with pytest.raises(openai.BadRequestError, match="no messages"):
            await ai.chat.completions.create(model="tiny", messages=[])


async def test_openai_client_raises_for_an_interrupted_stream(tmp_path):
    async def dies(request: web.Request) -> web.StreamResponse:
        stream = await stream_of(request, event("1"))
        assert request.transport is not None
        request.transport.abort()
        return stream

    async with serving_one(tmp_path, dies) as client, openai_client(client) as ai:
        stream = await ai.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        assert (await anext(stream)).choices[0].delta.content == "1"
        with pytest.raises(openai.APIError, match="lost in the middle"):
            await anext(stream)
