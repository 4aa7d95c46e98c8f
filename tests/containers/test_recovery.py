"""Agents and engines that die, engines that are others, and containers that only look like ours."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.agent.runtimes import CreateFailed, Handle, Runtime, RuntimeFailed
from moorage.agent.runtimes.docker.availability import AWAY_S, RuntimeAvailability, tidy
from moorage.agent.runtimes.docker.container_config import container_name
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from tests.free_ports import free_port

from .conftest import MakeRuntime, launch
from .engine import PrivateEngine
from .images import FORGED, PYTHON_IMAGE

TICKS = "import time, sys\nwhile True: print('tick', flush=True); time.sleep(0.05)"
SERVE = "import http.server; http.server.test(port={port}, bind='0.0.0.0')"


async def until(runtime: Runtime, handle: Handle, *states: S, within_s: float = 20) -> None:
    async with asyncio.timeout(within_s):
        while (seen := await runtime.observe(handle)).state not in states:
            await runtime.wait(handle, seen.state)


def make_by_hand(engine: PrivateEngine, name: str, labels: dict[str, str], *, start: bool = True) -> str:
    """As somebody who may use the engine would, and as an agent that is killed in the middle."""
    with contextlib.closing(engine.api()) as api:
        words = ["python3", "-c", "import time; time.sleep(3600)"]
        made = api.create_container(PYTHON_IMAGE, entrypoint=words, name=name, labels=labels)
        if start:
            api.start(made["Id"])
        return str(made["Id"])


def status(engine: PrivateEngine, container: str) -> str:
    with contextlib.closing(engine.api()) as api:
        found = [row["State"] for row in api.containers(all=True) if row["Id"] == container]
    return found[0] if found else "gone"


@pytest_asyncio.fixture
async def stranger(docker_engine: PrivateEngine) -> AsyncIterator[list[str]]:
    """Ids of containers that are nobody's, removed after the test."""
    made: list[str] = []
    yield made
    with contextlib.closing(docker_engine.api()) as api:
        for container in made:
            api.remove_container(container, force=True)


async def test_labels_prove_nothing(
    make_runtime: MakeRuntime, docker_engine: PrivateEngine, stranger: list[str]
) -> None:
    runtime = make_runtime()
    genuine = launch()
    handle = await runtime.create(genuine)
    with contextlib.closing(docker_engine.api()) as api:
        labels = api.inspect_container(handle.state["container"])["Config"]["Labels"]
    assert not set(FORGED.values()) & set(labels.values()), "the image's labels do not get through"
    # A copy of all that a container of ours carries, another kernel's id on top, and a kernel made up.
    another = KernelId(SystemClock().new_id())
    stranger += [
        make_by_hand(docker_engine, "a-copy", labels),
        make_by_hand(docker_engine, container_name(another), labels | {"moorage.kernel": another}),
        make_by_hand(docker_engine, "made-up", labels | {"moorage.seal": ""}),
    ]
    assert list(await runtime.find()) == [genuine.kernel_id]
    await runtime.destroy(handle)
    assert await runtime.find() == {}
    assert [status(docker_engine, container) for container in stranger] == ["running"] * 3
    # And its name is taken.
    with pytest.raises(CreateFailed, match="not of this agent's making"):
        await runtime.create(launch(kernel_id=another))


async def test_another_agent_sees_none_of_it(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    await make_runtime().create(launch())
    assert await make_runtime(state=tmp_path / "other").find() == {}


async def test_what_was_never_begun_is_removed_when_it_is_found(
    make_runtime: MakeRuntime, docker_engine: PrivateEngine, tmp_path: Path
) -> None:
    runtime, kernel_id = make_runtime(), KernelId(SystemClock().new_id())
    labels = load_label_signer(tmp_path / "docker.key", SystemClock()).labels(kernel_id, 0)
    half = make_by_hand(docker_engine, container_name(kernel_id), labels, start=False)
    assert status(docker_engine, half) == "created"
    assert await runtime.find() == {}
    assert status(docker_engine, half) == "gone"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_an_engine_that_ends_and_comes_back(
    make_runtime: MakeRuntime, mortal_engine: PrivateEngine, how: signal.Signals
) -> None:
    runtime, port = make_runtime(), free_port()
    serving = await runtime.create(launch(SERVE.format(port=port), port=port))
    ending = await runtime.create(launch("import time; time.sleep(2); raise SystemExit(3)"))
    await until(runtime, serving, S.RUNNING)
    waiting = asyncio.create_task(runtime.wait(serving, S.RUNNING))
    mortal_engine.stop(how)
    async with asyncio.timeout(10):
        await waiting  # told that it must be looked at
    for handle in (serving, ending):
        assert (await runtime.observe(handle)).state is S.UNKNOWN
    with pytest.raises(RuntimeFailed):
        await runtime.find()
    with pytest.raises(RuntimeFailed):
        await runtime.destroy(serving)
    with pytest.raises(CreateFailed) as caught:
        await runtime.create(launch())
    assert (caught.value.reason, caught.value.clean) == (Reason.RUNTIME_UNAVAILABLE, True)
    mortal_engine.start()
    await until(runtime, serving, S.RUNNING)
    await until(runtime, ending, S.EXITED)
    assert (await runtime.observe(ending)).exit_code == 3
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_an_engine_that_takes_its_containers_along(
    make_runtime: MakeRuntime, plain_engine: PrivateEngine, how: signal.Signals
) -> None:
    runtime = make_runtime(plain_engine.socket)
    handle = await runtime.create(launch())
    plain_engine.stop(how)
    assert (await runtime.observe(handle)).state is S.UNKNOWN
    plain_engine.start()
    await until(runtime, handle, S.EXITED)
    assert (await runtime.observe(handle)).exit_code == -signal.SIGTERM  # by the engine


async def test_an_engine_that_hangs(make_runtime: MakeRuntime, mortal_engine: PrivateEngine) -> None:
    runtime = make_runtime()
    handle = await runtime.create(launch())
    mortal_engine.send(signal.SIGSTOP)
    try:
        async with asyncio.timeout(8):
            assert (await runtime.observe(handle)).state is S.UNKNOWN
    finally:
        mortal_engine.send(signal.SIGCONT)
    await until(runtime, handle, S.RUNNING)


async def test_another_engine_than_before_says_nothing_about_it(
    make_runtime: MakeRuntime, plain_engine: PrivateEngine
) -> None:
    handle = await make_runtime().create(launch())
    moved = make_runtime(plain_engine.socket)
    seen = await moved.observe(handle)
    assert seen.state is S.UNKNOWN
    assert "another Docker Engine" in seen.detail
    with pytest.raises(RuntimeFailed, match="another Docker Engine"):
        await moved.destroy(handle)
    # After a restart of the node nothing of it can be left.
    rebooted = replace(handle, state=handle.state | {"boot_id": "an-earlier-one"})
    assert (await moved.observe(rebooted)).state is S.GONE


async def test_a_container_that_somebody_removes_is_gone(
    make_runtime: MakeRuntime, docker_engine: PrivateEngine
) -> None:
    runtime = make_runtime()
    handle = await runtime.create(launch())
    waiting = asyncio.create_task(runtime.wait(handle, S.RUNNING))
    done, _ = await asyncio.wait([waiting], timeout=1.5)
    assert not done
    with contextlib.closing(docker_engine.api()) as api:
        api.remove_container(handle.state["container"], force=True)
    async with asyncio.timeout(5):
        await waiting
    await until(runtime, handle, S.GONE)


async def test_a_log_is_followed_to_the_end_of_the_engine(
    make_runtime: MakeRuntime, mortal_engine: PrivateEngine
) -> None:
    runtime = make_runtime()
    handle = await runtime.create(launch(TICKS))
    said = b""

    async def follow() -> None:
        nonlocal said
        async for data in runtime.logs(handle, follow=True):
            said += data
            if b"tick" in said and mortal_engine.runs:
                mortal_engine.stop(signal.SIGKILL)

    with pytest.raises(RuntimeFailed):
        await follow()
    assert said.startswith(b"tick\n")


async def test_containers_are_offered_while_an_engine_answers(
    make_runtime: MakeRuntime, mortal_engine: PrivateEngine, tmp_path: Path
) -> None:
    clock = ManualClock()
    nowhere = RuntimeAvailability(make_runtime(tmp_path / "no.sock", tmp_path / "none"), clock)
    await nowhere.look()
    assert not nowhere.offered
    there = RuntimeAvailability(make_runtime(), clock)
    await there.look()
    assert there.offered
    mortal_engine.stop()
    for passed, offered in ((AWAY_S / 2, True), (AWAY_S, False)):
        clock.advance(passed)
        await there.look()
        assert there.offered is offered
    mortal_engine.start()
    await there.look()
    assert there.offered


async def test_an_engine_that_is_down_for_ten_minutes(
    make_runtime: MakeRuntime, mortal_engine: PrivateEngine
) -> None:
    """As the agent looks, each half minute of a played clock: nothing is given up, nothing new comes."""
    clock, runtime = ManualClock(), make_runtime()
    there = RuntimeAvailability(runtime, clock)
    await there.look()
    living = await runtime.create(launch())
    mortal_engine.stop(signal.SIGKILL)
    offered = []
    for _ in range(20):
        clock.advance(30)
        await there.look()
        await tidy(runtime)
        offered.append(there.offered)
        assert (await runtime.observe(living)).state is S.UNKNOWN
        with pytest.raises(RuntimeFailed):
            await runtime.find()
    assert offered == [True] * 1 + [False] * 19
    with pytest.raises(CreateFailed) as caught:
        await runtime.prepare(launch())
    assert (caught.value.reason, caught.value.clean) == (Reason.RUNTIME_UNAVAILABLE, True)
    mortal_engine.start()
    await there.look()
    assert there.offered
    await until(runtime, living, S.RUNNING)
    assert list(await runtime.find()) == [living.state["kernel_id"]]
