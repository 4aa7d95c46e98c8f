"""Crashes: SIGKILL of each component while a stream is open and a step of a pipeline ends.

Nothing is lost, duplicated or left behind, and the ledger has everything.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.sdk import Unreachable, chat

from .harness import Platform, kernels_below, processes, until
from .ledger_account import LedgerAccount

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
COMPONENTS = ("manager", "agent", "postgres", "proxy")


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    """It has its own Postgres, which is also killed."""
    running = Platform(home)
    yield running
    running.close()
    assert kernels_below(home) == {}


def chain(home: Path) -> PipelineSpec:
    """A step for each component, which ends when its gate is opened. It adds its name to the
    previous step's output, and to a file that lists all runs."""
    steps: list[dict[str, Any]] = []
    for name in COMPONENTS:
        before = f"cat inputs/{steps[-1]['name']}/out/names" if steps else "true"
        wait = f"until test -e {home}/gate-{name}; do sleep 0.05; done"
        program = f"{wait}; echo {name} >> {home}/runs; mkdir out; {{ {before}; echo {name}; }} > out/names"
        resources = {"cpu": "0.1", "mem": "16MiB"}
        step = {
            "name": name,
            "outputs": ["out"],
            "spec": {"command": ["sh", "-c", program], "resources": resources},
        }
        steps.append(step | ({"inputs": [f"{steps[-1]['name']}/out"]} if steps else {}))

    last = steps[-1]["name"]
    show = {
        "command": ["cat", f"inputs/{last}/out/names"],
        "resources": {"cpu": "0.1", "mem": "16MiB"},
    }
    steps.append({"name": "show", "inputs": [f"{last}/out"], "spec": show})
    return PipelineSpec.model_validate({"name": "chain", "steps": steps})


def tiny(model: Path) -> EndpointSpec:
    return EndpointSpec(
        name="tiny",
        engine="llamacpp",
        model=str(model),
        resources={"cpu": "0.1", "mem": "64MiB"},
        stop_grace_s=2,
    )


async def stream(platform: Platform) -> str:
    """A complete streamed response from the slow engine. Raises if it is interrupted or ends
    without [DONE]."""
    messages = [{"role": "user", "content": "go on"}]
    pieces = [
        p async for p in chat(platform.openai_url, platform.key, "slow", messages, max_tokens=WORDS)
    ]  # type: ignore[list-item]
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
        views = [await client.endpoints.get(name) for name in ("tiny", "slow")]
        agent = await client.agents.get("node-1")
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


async def start_all(platform: Platform, ledger: LedgerAccount, model: Path) -> None:
    for component in ("manager", "agent", "proxy"):
        platform.start(component)
        if component == "manager":
            await until(
                "the admin key exists",
                lambda: asyncio.to_thread((platform.home / "admin-key").exists),
            )
            await ledger.begin()

    async def create_endpoints() -> bool:
        async with platform.client() as client:
            for spec in (tiny(model), SLOW):
                await client.endpoints.create(spec)
        return True

    await until("the manager answers", create_endpoints)
    await until("both models are ready", lambda: is_healthy(platform))


async def check_chain(platform: Platform) -> None:
    async def has_succeeded() -> bool:
        async with platform.client() as client:
            return (await client.pipelines.get("chain")).state == "succeeded"

    await until("the pipeline has succeeded", has_succeeded)
    async with platform.client() as client:
        show = (await client.pipelines.get("chain")).steps[-1].session_id
        shown = b"".join([piece async for piece in client.sessions.logs(show)])

    assert shown.decode().split() == list(COMPONENTS), "each step read the output of the one before"
    assert (platform.home / "runs").read_text().split() == list(COMPONENTS), "each step ran once"


@pytest.mark.timeout(240)
async def test_killing_each_component_in_turn(platform: Platform, tiny_model: Path) -> None:
    ledger = LedgerAccount(platform.home)
    await start_all(platform, ledger, tiny_model)
    engines = kernels_below(platform.home)
    assert len(set(engines.values())) == 2
    async with platform.client() as client:
        await client.pipelines.create(chain(platform.home))
        sessions = {s.id for s in await client.sessions.list()}

    for component in COMPONENTS:
        streaming = asyncio.create_task(stream(platform))
        await until("the stream has started", lambda: has_request_in_flight(platform))
        (platform.home / f"gate-{component}").touch()
        await kill_component(platform, component)

        if component == "proxy":
            with pytest.raises(Unreachable, match=r"cut off|nothing answers|silent"):
                await streaming
        else:
            assert (await streaming).split() == [str(n) for n in range(WORDS)], (
                f"a stream was interrupted: {component}"
            )

        await until(
            f"the platform is healthy after the {component} was killed",
            lambda: is_healthy(platform),
        )
        for model in ("tiny", "slow"):
            await until(
                f"{model} answers after the {component} was killed",
                lambda m=model: answers(platform, m),
            )

        kernels = kernels_below(platform.home)
        assert {
            pid: kernel for pid, kernel in kernels.items() if kernel in engines.values()
        } == engines, f"an engine was restarted after the {component} was killed"
        await ledger.check()

        async with platform.client() as client:
            assert {s.id for s in await client.sessions.list()} == sessions, (
                "no session was created or lost"
            )

    await check_chain(platform)
    for name in ("tiny", "slow"):
        stopped = await asyncio.to_thread(platform.run, "stop", name)
        assert stopped.returncode == 0, stopped.stderr

    await until(
        "no engine is left", lambda: asyncio.to_thread(lambda: not kernels_below(platform.home))
    )
    async with platform.client() as client:
        agent = await client.agents.get("node-1")
        assert await ledger.check() >= 2, (
            "both models are charged, and each step that was seen to run"
        )
        assert {o.slot: o.used for o in agent.offers if o.used} == {}, "no slot is leaked"

        for session in await client.sessions.list():
            assert session.status == "TERMINATED"
            revisions = [e.revision for e in await client.sessions.history(session.id)]
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
    async with platform.client() as client:
        await client.endpoints.create(tiny(tiny_model))

    await until("it answers", lambda: answers(platform, "tiny"))
    before = kernels_below(platform.home)
    for pid in before:
        os.kill(pid, signal.SIGKILL)

    async def replaced() -> bool:
        now = set(kernels_below(platform.home).values())
        return bool(now) and not now & set(before.values()) and await answers(platform, "tiny")

    await until("another engine answers", replaced)
    async with platform.client() as client:
        ended = [s for s in await client.sessions.list() if s.status == "ERROR"]

    assert [s.reason for s in ended] == ["killed"]
