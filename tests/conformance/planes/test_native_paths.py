"""Paths beyond OpenAI's: engines' own, those that an endpoint lists, and Azure's."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.conformance.planes.harness import (
    KEY,
    MakePlane,
    head,
    limited,
    post,
    replica,
    serving,
    serving_one,
    table,
    target,
)
from tests.conformance.planes.replica import answer, answers

from moorage.common.link.messages import ModelRoute, RequestLimits

TIMINGS = b'{"content":"x","timings":{"cache_n":1,"prompt_n":2,"predicted_n":5}}'
REPORT = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(TIMINGS), TIMINGS)


async def test_paths_of_engines_and_endpoints(plane: MakePlane) -> None:
    async with replica(answer) as started:
        one = target("k", started.port)
        routes = table(one)
        llamacpp = replace(one, kernel_id="l", engine="llamacpp")
        more = (
            ModelRoute("native", 1, (llamacpp,), project=routes.models[0].project),
            ModelRoute("images", 1, (replace(one, kernel_id="i"),), apis=("/txt2img",)),
        )
        async with serving(plane, replace(routes, models=(*routes.models, *more))) as served:
            for path, model, status in (
                ("/completion?a=1", "native", 200),
                ("/txt2img", "images", 200),
                ("/txt2img", "native", 404),
                ("/v2/embed", "native", 404),
                ("/slots/0?action=save", "native", 404),
                ("/txt2img/other", "images", 404),
            ):
                got = await served.ask(post(b'{"model":"%b"}' % model.encode(), path=path))
                assert got.status == status, (path, model)
                if status == 404:
                    assert json.loads(got.body)["error"]["code"] == "unknown_url"

        lines = [request.line for request in started.requests]
        assert lines == [f"POST {path} HTTP/1.1" for path in ("/completion?a=1", "/txt2img")]


async def test_azures_addresses(plane: MakePlane) -> None:
    async with replica(answer) as started, serving(plane, table(target("k", started.port))) as it:
        address = "/openai/deployments/tiny/chat/completions?api-version=2026-10-21"
        sent = head("Content-Length: 7", f"api-key: {KEY}", path=address) + b'{"a":1}'
        bearer = f"Authorization: Bearer {KEY}\r\n".encode()
        assert bearer in sent
        sent = sent.replace(bearer, b"")
        for _ in range(2):
            assert (await it.ask(sent)).status == 200

        wrong = sent.replace(f"api-key: {KEY}".encode(), b"api-key: wrong")
        assert (await it.ask(wrong)).status == 401
        for request in started.requests:
            assert request.line.startswith("POST /v1/chat/completions?api-version=")
            assert json.loads(request.body) == {"model": "tiny", "a": 1}
            assert not request.all("api-key")


async def test_tokens_of_native_answers_count(plane: MakePlane) -> None:
    async with serving_one(plane, answers(REPORT)) as (served, _):
        usage = limited(served, RequestLimits(tokens_per_minute=10_000))
        assert (await served.ask(post(path="/completion"))).status == 200
        [used] = usage.take().values()
        assert (used.tokens_in, used.tokens_out, used.tokens_cached) == (3, 5, 1)
