"""APIs beyond the basic ones, on every data plane: Anthropic's messages, forms, project
addresses."""

from __future__ import annotations

import json

import aiohttp
import pytest
from aiohttp import web
from proxy_harness import AUTH, KEY, event, serving_one, stream_of


@pytest.fixture(params=["asyncio", "simple"])
def plane(request: pytest.FixtureRequest) -> str:
    return request.param


async def echo(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    if b'"stream": true' in body:
        stream = await stream_of(request, event("1"))
        assert request.transport is not None
        request.transport.abort()
        return stream

    headers = {
        name: request.headers.get(name)
        for name in ("Authorization", "X-Api-Key", "Anthropic-Version")
    }
    seen = {
        "path": request.raw_path,
        "size": len(body),
        "type": request.content_type,
        "headers": headers,
    }
    return web.json_response(seen)


async def test_messages_with_anthropics_key_and_errors(tmp_path, plane):
    key = {"X-Api-Key": KEY, "Anthropic-Version": "2023-06-01"}
    async with serving_one(tmp_path, echo, plane=plane) as client:
        url = client.url + "/v1/messages?beta=true"
        async with client.session.post(url, json={"model": "tiny"}, headers=key) as response:
            seen = await response.json()
            assert seen["path"] == "/v1/messages?beta=true"
            assert seen["headers"] == {
                "Authorization": "Bearer engine-key",
                "X-Api-Key": None,
                "Anthropic-Version": "2023-06-01",
            }

        for headers, model, status, kind in (
            ({"X-Api-Key": "wrong"}, "tiny", 401, "authentication_error"),
            (key, "nope", 404, "not_found_error"),
        ):
            async with client.session.post(url, json={"model": model}, headers=headers) as response:
                found = await response.json()
                assert (response.status, found["type"], found["error"]["type"]) == (
                    status,
                    "error",
                    kind,
                )

        async with client.session.post(
            url, json={"model": "tiny", "stream": True}, headers=key
        ) as response:
            body = await response.read()
            assert b'event: error\ndata: {"type": "error", "error": {"type": "api_error"' in body


async def test_audio_passes_by_the_model_of_its_form(tmp_path, plane):
    audio = bytes(range(256)) * 1000
    async with serving_one(tmp_path, echo, plane=plane) as client:
        for _ in range(2):
            form = aiohttp.FormData()
            form.add_field("file", audio, filename="a.wav")
            form.add_field("model", "tiny")
            url = client.url + "/v1/audio/transcriptions"
            async with client.session.post(url, data=form, headers=AUTH) as response:
                seen = await response.json()
                assert response.status == 200
                assert (seen["path"], seen["type"]) == (
                    "/v1/audio/transcriptions",
                    "multipart/form-data",
                )
                assert seen["size"] > len(audio)


async def test_address_of_a_project_is_stripped(tmp_path, plane):
    async with serving_one(tmp_path, echo, plane=plane, auth="none") as client:
        async with client.post({"model": "tiny"}, "/p/vision/v1/completions?a=1") as response:
            assert (await response.json())["path"] == "/v1/completions?a=1"
        async with client.post({"model": "nope"}, "/p/vision/v1/completions") as response:
            assert json.loads(await response.read())["error"]["code"] == "model_not_found"
