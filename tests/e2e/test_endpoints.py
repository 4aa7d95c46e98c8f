"""Endpoints through the real proxy: sleep and wake, rolling update, scale-down, without a failed request."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp

from moorage.common.views.endpoints import EndpointPatch

from .harness import Platform, until
from .test_crashes import SLOW

NAME = SLOW.name


async def ask(http: aiohttp.ClientSession, platform: Platform, words: int = 3) -> str:
    body = {"model": NAME, "max_tokens": words, "messages": [{"role": "user", "content": "hello"}]}
    async with http.post(f"{platform.openai_url}/chat/completions", json=body) as answer:
        text = await answer.text()
        return "ok" if answer.status == 200 and "[DONE]" in text else f"{answer.status} {text[-200:]}"


async def test_endpoint_sleeps_rolls_and_wakes(one_node: Platform) -> None:
    platform, seen = one_node, Counter[str]()
    await platform.wait_until_ready()
    scaled = {"autoscale": {"min": 0, "max": 2, "idle_timeout_s": 3}, "replicas": 2}
    over = asyncio.Event()

    async def load() -> None:
        while not over.is_set():
            seen[await ask(http, platform)] += 1

    async with platform.client() as client, aiohttp.ClientSession(headers=platform.auth) as http:

        async def has(status: str, revision: int = 1, ready: int = 0) -> bool:
            view = await client.get_endpoint(NAME)
            assert view.rollout is not None
            return (view.status, view.revision, view.rollout.state) == (status, revision, "complete") and (
                view.ready >= ready
            )

        await client.create_endpoint(SLOW.model_copy(update={"replicas": 2}))
        await until("both replicas are ready", lambda: has("ready", ready=2))
        clients = [asyncio.create_task(load()) for _ in range(6)]
        await client.update_endpoint(NAME, EndpointPatch(env={"NEW": "1"}))
        await until("the new revision is complete", lambda: has("ready", 2, 2))
        await client.scale_endpoint(NAME, 1)

        async def one_is_left() -> bool:
            return [r.state for r in (await client.get_endpoint(NAME)).sessions if r.state] == ["ready"]

        await until("one replica is left", one_is_left)
        over.set()
        await asyncio.gather(*clients)
        assert set(seen) == {"ok"}, seen
        await client.update_endpoint(NAME, EndpointPatch.model_validate(scaled | {"replicas": 1}))
        await until("it sleeps", lambda: has("not_loaded", 2))

        async def is_unloaded() -> bool:
            return not any(r.state for r in (await client.get_endpoint(NAME)).sessions)

        # Its last replica drains first, and a proxy that has not heard of that yet sends it requests.
        await until("no replica is left", is_unloaded)
        woken = await asyncio.gather(*(ask(http, platform) for _ in range(10)))
        assert woken == ["ok"] * 10
        decisions = await client.scaling_decisions(NAME)
        assert [d.rule for d in decisions][-2:] == ["wake", "idle"], "the newest first"
        described = platform.run("describe", NAME)
        assert "wake" in described.stdout, described
        await client.delete_endpoint(NAME)
