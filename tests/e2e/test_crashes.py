"""Crashes: SIGKILL of each component while a stream is open. Nothing is lost, doubled or left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from moorage.common.model.spec import EndpointSpec, Probe
from moorage.sdk import Unreachable, chat

from .harness import Platform, kernels_below, processes, until

# One platform at a time, also with pytest -n and --dist loadgroup.
SLOW = EndpointSpec(
    name="slow",
    engine="custom",
    command=[sys.executable, str(Path(__file__).with_name("slow_engine.py")), "{port}"],
    probe=Probe(path="/health"),
    resources={"cpu": "0.1", "mem": "64MiB"},
    stop_grace_s=2,
)
WORDS = 100  # 5 seconds


def tiny(model: Path) -> EndpointSpec:
    return EndpointSpec(
        name="tiny",
        engine="llamacpp",
        model=str(model),
        resources={"cpu": "0.1", "mem": "64MiB"},
        stop_grace_s=2,
    )


async def stream(platform: Platform) -> str:
    """A complete streamed response of the slow engine. Raises if it is interrupted or ends without [DONE]."""
    messages = [{"role": "user", "content": "go on"}]
    pieces = [p async for p in chat(platform.openai_url, platform.key, "slow", messages, max_tokens=WORDS)]  # type: ignore[list-item]
    return "".join(pieces)


async def answers(platform: Platform, model: str) -> bool:
    ask = {"model": model, "max_tokens": 3, "messages": [{"role": "user", "content": "hello"}]}
    async with (
        aiohttp.ClientSession(headers=platform.auth) as http,
        http.post(f"{platform.openai_url}/chat/completions", json=ask) as answer,
    ):
        await answer.read()
        return answer.status == 200


async def is_healthy(platform: Platform) -> bool:
    async with platform.client() as client:
        views = [await client.get_endpoint(name) for name in ("tiny", "slow")]
        agent = await client.get_agent("node-1")
    return all(v.status == "ready" for v in views) and agent.status == "ALIVE"


async def postgres_pid(platform: Platform) -> int:
    """The postmaster that the manager started."""
    manager = platform.pid("manager")
    for pid in processes():
        stat = Path(f"/proc/{pid}/stat")
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == manager and name == "postgres":
            return pid
    raise AssertionError("the manager has no Postgres")


async def kill_component(platform: Platform, component: str) -> None:
    if component == "postgres":
        os.kill(await postgres_pid(platform), signal.SIGKILL)
    else:
        platform.kill(component)
        platform.start(component)


@pytest.mark.timeout(240)
async def test_killing_each_component_in_turn(platform: Platform, tiny_model: Path) -> None:
    for component in ("manager", "agent", "proxy"):
        platform.start(component)
        if component == "manager":
            await until(
                "the admin key exists", lambda: asyncio.to_thread((platform.home / "admin-key").exists)
            )

    async def create_endpoints() -> bool:
        async with platform.client() as client:
            for spec in (tiny(tiny_model), SLOW):
                await client.create_endpoint(spec)
        return True

    await until("the manager answers", create_endpoints)
    await until("both models are ready", lambda: is_healthy(platform))
    engines = kernels_below(platform.home)
    assert len(set(engines.values())) == 2
    async with platform.client() as client:
        sessions = {s.id for s in (await client.list_sessions()).items}

    for component in ("manager", "agent", "postgres", "proxy"):
        streaming = asyncio.create_task(stream(platform))
        await until("the stream has started", lambda: has_request_in_flight(platform))
        await kill_component(platform, component)
        if component == "proxy":
            with pytest.raises(Unreachable, match=r"cut off|nothing answers|silent"):
                await streaming
        else:
            assert (await streaming).split() == [str(n) for n in range(WORDS)], (
                f"a stream was interrupted: {component}"
            )
        await until(f"the platform is healthy after the {component} was killed", lambda: is_healthy(platform))
        for model in ("tiny", "slow"):
            await until(
                f"{model} answers after the {component} was killed", lambda m=model: answers(platform, m)
            )
        assert kernels_below(platform.home) == engines, (
            f"an engine was restarted after the {component} was killed"
        )
        async with platform.client() as client:
            assert {s.id for s in (await client.list_sessions()).items} == sessions, (
                "no session was created or lost"
            )

    for name in ("tiny", "slow"):
        stopped = await asyncio.to_thread(platform.run, "stop", name)
        assert stopped.returncode == 0, stopped.stderr
    await until("no engine is left", lambda: asyncio.to_thread(lambda: not kernels_below(platform.home)))
    async with platform.client() as client:
        agent = await client.get_agent("node-1")
        assert {o.slot: o.used for o in agent.offers if o.used} == {}, "no slot is leaked"
        for session in (await client.list_sessions()).items:
            assert session.status == "TERMINATED"
            revisions = [e.revision for e in await client.history(session.id)]
            assert revisions == list(range(1, session.revision + 1)), "its history has no gap"


async def has_request_in_flight(platform: Platform) -> bool:
    """The proxy has a request for the slow model in flight."""
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{platform.internal_url}/metrics") as answer,
    ):
        text = await answer.text()
    return any(
        line.startswith('moorage_proxy_in_flight{model="slow"}') and float(line.split()[-1]) >= 1
        for line in text.splitlines()
    )


@pytest.mark.timeout(120)
async def test_killed_engine_is_replaced(one_node: Platform, tiny_model: Path) -> None:
    platform = one_node
    await until("the admin key exists", lambda: asyncio.to_thread((platform.home / "admin-key").exists))

    async def create_endpoints() -> bool:
        async with platform.client() as client:
            await client.create_endpoint(tiny(tiny_model))
        return True

    await until("the manager answers", create_endpoints)
    await until("it answers", lambda: answers(platform, "tiny"))
    before = kernels_below(platform.home)
    for pid in before:
        os.kill(pid, signal.SIGKILL)

    async def replaced() -> bool:
        now = set(kernels_below(platform.home).values())
        return bool(now) and not now & set(before.values()) and await answers(platform, "tiny")

    await until("another engine answers", replaced)
    async with platform.client() as client:
        ended = [s for s in (await client.list_sessions()).items if s.status == "ERROR"]
    assert [s.reason for s in ended] == ["killed"]
