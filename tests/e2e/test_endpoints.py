"""Endpoints through the real proxy: they sleep and wake, roll out and roll back, lose replicas, and
the proxy is reloaded, all without a failed request."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from moorage.common.model.serving import Autoscale, Rollout
from moorage.common.views.endpoints import EndpointPatch
from moorage.common.views.keys import KeySpec
from moorage.sdk import Client
from tests.addresses import free_port

from .harness import Platform, kernels_below, until
from .test_crashes import SLOW, tiny

NAME = SLOW.name


async def ask(http: aiohttp.ClientSession, url: str, words: int = 3) -> str:
    body = {"model": NAME, "max_tokens": words, "messages": [{"role": "user", "content": "hello"}]}
    try:
        async with http.post(f"{url}/chat/completions", json=body) as answer:
            text = await answer.text()
            return (
                "ok"
                if answer.status == 200 and "[DONE]" in text
                else f"{answer.status} {text[-200:]}"
            )
    except aiohttp.ClientError as error:
        return repr(error)


@asynccontextmanager
async def load(platform: Platform, url: str, clients: int = 6) -> AsyncIterator[Counter[str]]:
    """Clients that send one request after the other; odd-numbered ones use a new connection each
    time. Every answer must be complete."""
    seen = Counter[str]()
    over = asyncio.Event()

    async def client(number: int) -> None:
        while not over.is_set():
            async with aiohttp.ClientSession(headers=platform.auth) as http:
                for _ in range(1 if number % 2 else 20):
                    if not over.is_set():
                        seen[await ask(http, url)] += 1

    running = [asyncio.create_task(client(number)) for number in range(clients)]
    try:
        yield seen
    finally:
        over.set()
        await asyncio.gather(*running)

    assert set(seen) == {"ok"}, seen


async def has(client: Client, status: str, revision: int = 1, ready: int = 0) -> bool:
    view = await client.endpoints.get(NAME)
    assert view.rollout is not None
    reached = (view.status, view.revision, view.rollout.state) == (status, revision, "complete")
    assert reached, view  # on timeout, `until` shows the last one
    assert view.ready >= ready, view
    return True


async def live(client: Client) -> list[str]:
    """The states of the endpoint's live replicas."""
    return [r.state for r in (await client.endpoints.get(NAME)).sessions if r.state]


async def test_endpoint_sleeps_rolls_and_wakes(one_node: Platform) -> None:
    platform = one_node
    scaled = {"autoscale": {"min": 0, "max": 2, "idle_timeout_s": 3}, "replicas": 2}
    async with platform.client() as client:
        await client.endpoints.create(SLOW.model_copy(update={"replicas": 2}))
        await until("both replicas are ready", lambda: has(client, "ready", ready=2))
        async with load(platform, platform.openai_url):
            await client.endpoints.update(NAME, EndpointPatch(env={"NEW": "1"}))
            await until("the new revision is complete", lambda: has(client, "ready", 2, 2))
            await client.endpoints.scale(NAME, 1)

            async def one_is_left() -> bool:
                return await live(client) == ["ready"]

            await until("one replica is left", one_is_left)

        await client.endpoints.update(NAME, EndpointPatch.model_validate(scaled | {"replicas": 1}))
        await until("it sleeps", lambda: has(client, "not_loaded", 2))

        async def is_unloaded() -> bool:
            return not await live(client)

        # Its last replica drains first, and a proxy that does not know that yet still sends it
        # requests.
        await until("no replica is left", is_unloaded)
        async with aiohttp.ClientSession(headers=platform.auth) as http:
            woken = await asyncio.gather(*(ask(http, platform.openai_url) for _ in range(10)))

        assert woken == ["ok"] * 10
        decisions = await client.endpoints.scaling_decisions(NAME)
        assert [d.rule for d in decisions][-2:] == ["wake", "idle"], "the newest first"
        described = platform.run("describe", NAME)
        assert "wake" in described.stdout, described
        await client.endpoints.delete(NAME)


@asynccontextmanager
async def proxy_with_workers(platform: Platform) -> AsyncIterator[str]:
    """The address of a second proxy, with two workers."""
    port = free_port()
    internal = free_port()
    options = [f"proxy.internal_listen=127.0.0.1:{internal}", "proxy.id=other", "proxy.workers=2"]
    given = [word for option in options for word in ("--set", option)]
    connection = platform.home / "connection.json"
    before = connection.read_text()
    platform.start("proxy", "--listen", f"127.0.0.1:{port}", *given)

    try:
        url = f"http://127.0.0.1:{port}/v1"
        async with aiohttp.ClientSession(headers=platform.auth) as http:

            async def is_ready() -> bool:
                async with http.get(f"http://127.0.0.1:{internal}/readyz") as answer:
                    return '"ok"' in await answer.text()

            await until("the other proxy is ready", is_ready)

        yield url
    finally:
        assert platform.stop("proxy") == 0
        connection.write_text(before)  # commands would keep using the address of this proxy


def workers(platform: Platform) -> set[int]:
    pid = platform.pid("proxy")
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.mark.timeout(180)
async def test_reload_and_bad_revision_under_load(one_node: Platform) -> None:
    platform = one_node
    bad = EndpointPatch(command=["/bin/sh", "-c", "exit 3"])
    async with platform.client() as client, proxy_with_workers(platform) as url:
        rollout = Rollout(max_failures=1)
        await client.endpoints.create(SLOW.model_copy(update={"replicas": 2, "rollout": rollout}))
        await until("both replicas are ready", lambda: has(client, "ready", ready=2))

        async with load(platform, platform.openai_url, 2), load(platform, url) as seen:
            before = workers(platform)
            os.kill(platform.pid("proxy"), signal.SIGHUP)
            await client.endpoints.update(NAME, bad)

            async def is_rolled_back() -> bool:
                view = await client.endpoints.get(NAME)
                assert view.rollout is not None
                return (view.rollout.state, view.revision, view.rollout.old) == ("failed", 1, 0)

            await until("the bad revision is rolled back", is_rolled_back)

            async def are_replaced() -> bool:
                now = workers(platform)
                return len(now) == 2 and not now & before

            await until("the workers are replaced", are_replaced)
            so_far = seen["ok"]

            async def goes_on() -> bool:
                return seen["ok"] > so_far + 20

            await until("requests are answered by the new workers", goes_on)

        status = platform.run("rollout", "status", NAME)
        assert (status.returncode, "rolled back" in status.stdout) == (1, True), status
        await client.endpoints.delete(NAME)


async def test_replicas_killed_at_random(one_node: Platform, tiny_model: Path) -> None:
    """Two real engines. Only streams whose first byte was sent may fail, even when both are
    gone."""
    platform = one_node
    rng = random.Random(1)
    seen = Counter[str]()
    over = asyncio.Event()
    answered = [0] * 4

    async def client_of(number: int, openai_client: openai.AsyncOpenAI) -> None:
        while not over.is_set():
            streams = number % 2 == 1
            began = False
            try:
                given = {
                    "model": "tiny",
                    "messages": [{"role": "user", "content": "hello"}],
                    "max_tokens": 8,
                }
                answer: Any = await openai_client.chat.completions.create(**given, stream=streams)  # type: ignore[call-overload]
                if streams:
                    async for _ in answer:
                        began = True

                seen["ok"] += 1
            except openai.APIError as error:
                seen["cut off" if began else repr(error)] += 1

            answered[number] += 1
            await asyncio.sleep(0.1)  # saves the machine's CPU

    async with platform.client() as client:
        await client.endpoints.create(tiny(tiny_model).model_copy(update={"replicas": 2}))

        async def both() -> bool:
            view = await client.endpoints.get("tiny")
            return view.ready == len(set(kernels_below(platform.home).values())) == 2

        async def kill_one() -> None:
            """Then wait until every client has its answer."""
            before = list(answered)
            os.kill(rng.choice(sorted(kernels_below(platform.home))), signal.SIGKILL)
            await until("all go on", lambda: on_since(before))

        async def on_since(before: list[int]) -> bool:
            return all(now >= then + 2 for now, then in zip(answered, before, strict=True))

        await until("both replicas are ready", both)
        async with openai.AsyncOpenAI(
            base_url=platform.openai_url, api_key=platform.key, max_retries=0
        ) as openai_client:

            async def tells_context() -> bool:
                return (await openai_client.models.retrieve("tiny")).to_dict()[
                    "max_model_len"
                ] is not None

            await until("the list of models tells the context of the engine", tells_context)
            clients = [asyncio.create_task(client_of(number, openai_client)) for number in range(4)]
            try:
                for together in (1, 2, 1):
                    await until("both replicas are ready", both)
                    for _ in range(together):
                        await asyncio.sleep(rng.uniform(0, 0.5))
                        await kill_one()
            finally:
                over.set()
                await asyncio.gather(*clients)

        assert set(seen) <= {"ok", "cut off"}, seen
        assert seen["cut off"] <= 2 * 4, (
            "at most the streams that ran at a replica when it was killed"
        )
        await client.endpoints.delete("tiny")


async def lists(http: aiohttp.ClientSession, platform: Platform, key: str) -> bool:
    """Whether the proxy shows the model to a key."""
    headers = {"Authorization": f"Bearer {key}"}
    async with http.get(f"{platform.openai_url}/models", headers=headers) as answer:
        return NAME in await answer.text()


CLASSES = {"urgent": 90, "usual": None, "lowly": 1}


async def test_waiting_clients_are_answered_by_priority(
    one_node: Platform, reachable_dir: Path
) -> None:
    platform = one_node
    may_load = reachable_dir / "may-load"
    rng = random.Random(1)
    order = list[str]()
    async with platform.client() as client, aiohttp.ClientSession() as http:
        keys = {
            name: (await client.keys.create(KeySpec(name=name, max_priority=priority))).secret
            for name, priority in CLASSES.items()
        }
        env = {"WAIT_FOR": str(may_load), "SLOTS": "1"}
        scaling = Autoscale(min=0, max=1)
        spec = SLOW.model_copy(update={"replicas": 0, "autoscale": scaling, "env": env})
        await client.endpoints.create(spec)

        for secret in keys.values():
            await until(
                "the proxy knows the model and the key",
                lambda key=secret: lists(http, platform, key),
            )

        async def wait_in_line(name: str) -> str:
            body = {"model": NAME, "max_tokens": 1, "messages": []}
            headers = {"Authorization": f"Bearer {keys[name]}"}
            async with http.post(
                f"{platform.openai_url}/chat/completions", json=body, headers=headers
            ) as got:
                text = await got.text()
                order.append(name)
                return "ok" if got.status == 200 and "[DONE]" in text else f"{got.status} {text}"

        names = [name for name in CLASSES for _ in range(17)][:50]
        rng.shuffle(names)
        waiting = [asyncio.create_task(wait_in_line(name)) for name in names]

        async def all_wait() -> bool:
            return (await client.endpoints.get(NAME)).waiting == 50

        await until("all wait", all_wait)
        may_load.touch()
        assert await asyncio.gather(*waiting) == ["ok"] * 50
        assert order == sorted(names, key=list(CLASSES).index)
        (decision,) = await client.endpoints.scaling_decisions(NAME)
        assert (decision.rule, decision.from_replicas, decision.to_replicas) == ("wake", 0, 1)
        assert decision.inputs["held"] >= 1
        described = platform.run("describe", NAME)
        assert "requests wait" in described.stdout, described
        for name in keys:
            await client.keys.revoke(name)

        await client.endpoints.delete(NAME)
