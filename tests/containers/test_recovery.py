"""Recovery from failures of agents and engines, replaced engines, and forged containers."""

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
from moorage.agent.runtimes.availability import UNAVAILABLE_AFTER_S, RuntimeAvailability
from moorage.agent.runtimes.docker.availability import collect_images
from moorage.agent.runtimes.docker.container_config import container_name
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from tests.addresses import free_port

from .conftest import MakeRuntime, launch
from .engine import PrivateEngine
from .images import FORGED, PYTHON_IMAGE

TICKS = "import time, sys\nwhile True: print('tick', flush=True); time.sleep(0.05)"
# It is silent while its engine is killed, because output that the engine has read and not stored is
# lost with it.
COUNTING = "import time\nfor n in range(40): print('count', n, flush=True); time.sleep(4 if n == 9 else 0.01)"
SERVE = "import http.server; http.server.test(port={port}, bind='0.0.0.0')"


async def until(runtime: Runtime, handle: Handle, *states: S, within_s: float = 20) -> None:
    async with asyncio.timeout(within_s):
        while (observation := await runtime.observe(handle)).state not in states:
            await runtime.wait(handle, observation.state)


def create_directly(
    engine: PrivateEngine, name: str, labels: dict[str, str], *, start: bool = True
) -> str:
    """Create a container without the runtime, as another user of the engine does, or an agent that
    is killed before it starts the container."""
    with contextlib.closing(engine.api()) as api:
        argv = ["python3", "-c", "import time; time.sleep(3600)"]
        created = api.create_container(PYTHON_IMAGE, entrypoint=argv, name=name, labels=labels)
        if start:
            api.start(created["Id"])

        return str(created["Id"])


def status(engine: PrivateEngine, container: str) -> str:
    with contextlib.closing(engine.api()) as api:
        found = [row["State"] for row in api.containers(all=True) if row["Id"] == container]
    return found[0] if found else "gone"


@pytest_asyncio.fixture
async def foreign(docker_engine: PrivateEngine) -> AsyncIterator[list[str]]:
    """Ids of containers that belong to no agent; they are removed after the test."""
    containers: list[str] = []
    yield containers
    with contextlib.closing(docker_engine.api()) as api:
        for container in containers:
            api.remove_container(container, force=True)


async def test_forged_labels_are_ignored(
    make_runtime: MakeRuntime, docker_engine: PrivateEngine, foreign: list[str]
) -> None:
    runtime = make_runtime()
    genuine = launch()
    handle = await runtime.create(genuine)
    with contextlib.closing(docker_engine.api()) as api:
        labels = api.inspect_container(handle.state["container"])["Config"]["Labels"]

    assert not set(FORGED.values()) & set(labels.values()), "labels of the image are overridden"
    # Copied labels, copied labels with another kernel id, and labels without a signature.
    another = KernelId(SystemClock().new_id())
    foreign += [
        create_directly(docker_engine, "copied", labels),
        create_directly(
            docker_engine, container_name(another), labels | {"moorage.kernel": another}
        ),
        create_directly(docker_engine, "unsigned", labels | {"moorage.signature": ""}),
    ]
    assert list(await runtime.find()) == [genuine.kernel_id]
    await runtime.destroy(handle)
    assert await runtime.find() == {}
    assert [status(docker_engine, container) for container in foreign] == ["running"] * 3

    # That kernel's name is taken.
    with pytest.raises(CreateFailed, match="this agent did not create it"):
        await runtime.create(launch(kernel_id=another))


async def test_another_agent_finds_nothing(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    await make_runtime().create(launch())
    assert await make_runtime(state=tmp_path / "other").find() == {}


async def test_unstarted_container_is_removed(
    make_runtime: MakeRuntime, docker_engine: PrivateEngine, tmp_path: Path
) -> None:
    runtime = make_runtime()
    kernel_id = KernelId(SystemClock().new_id())
    labels = load_label_signer(tmp_path / "docker.key", SystemClock()).labels(kernel_id, 0)
    unstarted = create_directly(docker_engine, container_name(kernel_id), labels, start=False)
    assert status(docker_engine, unstarted) == "created"
    assert await runtime.find() == {}
    assert status(docker_engine, unstarted) == "gone"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_kernels_survive_a_restart_of_the_engine(
    make_runtime: MakeRuntime, stoppable_engine: PrivateEngine, number: signal.Signals
) -> None:
    runtime = make_runtime()
    port = free_port()
    serving = await runtime.create(launch(SERVE.format(port=port), port=port))
    ending = await runtime.create(launch("import time; time.sleep(2); raise SystemExit(3)"))
    await until(runtime, serving, S.RUNNING)
    waiting = asyncio.create_task(runtime.wait(serving, S.RUNNING))
    stoppable_engine.stop(number)
    async with asyncio.timeout(10):
        await waiting

    for handle in (serving, ending):
        assert (await runtime.observe(handle)).state is S.UNKNOWN

    with pytest.raises(RuntimeFailed):
        await runtime.find()
    with pytest.raises(RuntimeFailed):
        await runtime.destroy(serving)
    with pytest.raises(CreateFailed) as caught:
        await runtime.create(launch())

    assert (caught.value.reason, caught.value.clean) == (Reason.RUNTIME_UNAVAILABLE, True)
    stoppable_engine.start()
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_engine_without_live_restore_ends_its_containers(
    make_runtime: MakeRuntime, plain_engine: PrivateEngine, number: signal.Signals
) -> None:
    runtime = make_runtime(plain_engine.socket)
    handle = await runtime.create(launch(TICKS))
    async with contextlib.aclosing(runtime.logs(handle, follow=True)) as output:
        await anext(output)  # a signal sent before the program runs would reach only its init

    plain_engine.stop(number)
    assert (await runtime.observe(handle)).state is S.UNKNOWN
    plain_engine.start()
    await until(runtime, handle, S.EXITED)
    assert (await runtime.observe(handle)).exit_code == -signal.SIGTERM  # the engine sends it


async def test_hanging_engine_is_unknown(
    make_runtime: MakeRuntime, stoppable_engine: PrivateEngine
) -> None:
    runtime = make_runtime()
    handle = await runtime.create(launch())
    stoppable_engine.send(signal.SIGSTOP)

    try:
        async with asyncio.timeout(8):
            while (await runtime.observe(handle)).state is not S.UNKNOWN:
                await asyncio.sleep(0.1)  # its threads stop one after the other
    finally:
        stoppable_engine.send(signal.SIGCONT)

    await until(runtime, handle, S.RUNNING)


async def test_different_engine_is_unknown(
    make_runtime: MakeRuntime, plain_engine: PrivateEngine
) -> None:
    handle = await make_runtime().create(launch())
    moved = make_runtime(plain_engine.socket)
    observation = await moved.observe(handle)
    assert observation.state is S.UNKNOWN
    assert "a different Docker Engine" in observation.detail
    with pytest.raises(RuntimeFailed, match="a different Docker Engine"):
        await moved.destroy(handle)

    # After a reboot, nothing is left of the kernel.
    rebooted = replace(handle, state=handle.state | {"boot_id": "an-earlier-one"})
    assert (await moved.observe(rebooted)).state is S.GONE


async def test_container_removed_by_a_user_is_gone(
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


async def test_a_followed_log_goes_on_behind_an_engine_that_was_killed(
    make_runtime: MakeRuntime, stoppable_engine: PrivateEngine
) -> None:
    runtime = make_runtime()
    handle = await runtime.create(launch(COUNTING))
    output = b""
    async with asyncio.timeout(60):
        async for data in runtime.logs(handle, follow=True):
            output += data
            if output.endswith(b"count 9\n"):
                stoppable_engine.stop(signal.SIGKILL)
                assert b"".join([data async for data in runtime.logs(handle)]) == output
                stoppable_engine.start()

    assert output == b"".join(b"count %d\n" % number for number in range(40))


async def test_runtime_is_offered_while_the_engine_answers(
    make_runtime: MakeRuntime, stoppable_engine: PrivateEngine, tmp_path: Path
) -> None:
    clock = ManualClock()
    missing = RuntimeAvailability(make_runtime(tmp_path / "no.sock", tmp_path / "none"), clock)
    await missing.check()
    assert not missing.offered
    availability = RuntimeAvailability(make_runtime(), clock)
    await availability.check()
    assert availability.offered
    stoppable_engine.stop()

    for passed, offered in ((UNAVAILABLE_AFTER_S / 2, True), (UNAVAILABLE_AFTER_S, False)):
        clock.advance(passed)
        await availability.check()
        assert availability.offered is offered

    stoppable_engine.start()
    await availability.check()
    assert availability.offered


async def test_engine_outage_of_ten_minutes(
    make_runtime: MakeRuntime, stoppable_engine: PrivateEngine
) -> None:
    """Checks run every 30 s of a manual clock: kernels are kept, and the runtime is withdrawn."""
    clock = ManualClock()
    runtime = make_runtime()
    availability = RuntimeAvailability(runtime, clock)
    await availability.check()
    living = await runtime.create(launch())
    stoppable_engine.stop(signal.SIGKILL)
    offered = []
    for _ in range(20):
        clock.advance(30)
        await availability.check()
        await collect_images(runtime)
        offered.append(availability.offered)
        assert (await runtime.observe(living)).state is S.UNKNOWN
        with pytest.raises(RuntimeFailed):
            await runtime.find()

    assert offered == [True] * 1 + [False] * 19
    with pytest.raises(CreateFailed) as caught:
        await runtime.prepare(launch())

    assert (caught.value.reason, caught.value.clean) == (Reason.RUNTIME_UNAVAILABLE, True)
    stoppable_engine.start()
    await availability.check()
    assert availability.offered
    await until(runtime, living, S.RUNNING)
    assert list(await runtime.find()) == [living.state["kernel_id"]]
