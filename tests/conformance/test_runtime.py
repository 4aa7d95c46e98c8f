"""What every runtime must do. A new runtime is a new ``Bench`` here, and passes all of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio
from tests.containers.images import PYTHON_IMAGE
from tests.free_ports import free_port

from moorage.agent.runtimes import FakeRuntime, Handle, Launch, ProcessRuntime, Runtime
from moorage.agent.runtimes.docker import (
    ContainerRules,
    DockerRuntime,
    Engine,
    ImageGarbageCollector,
    ImageGcRules,
    PulledImages,
)
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.agent.runtimes.fake import FakeNode
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S


class Bench(Protocol):
    """One world, in which runtimes come and go like agents that restart."""

    def runtime(self) -> Runtime: ...

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, says: str = ""
    ) -> Launch:
        """A kernel that runs ``run_s`` seconds (None: until it is stopped)."""
        ...


class FakeBench:
    def __init__(self, folder: Path) -> None:
        self._logs, self._node = LogStore(folder / "logs"), FakeNode()

    def runtime(self) -> Runtime:
        return FakeRuntime(self._logs, self._node)

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, says: str = ""
    ) -> Launch:
        env = {"FAKE_EXIT_CODE": str(code), "FAKE_LOG": says, "FAKE_IGNORE_TERM": "1" if stubborn else ""}
        env |= {"FAKE_CPU": "1", "FAKE_MEMORY": "1000000"}
        if run_s is not None:
            env["FAKE_RUN_S"] = str(run_s)
        return Launch(_id(), ("pretended",), env, port=4711)


_PROGRAM = """
import os, signal, sys, time
run_s, code, stubborn, says = sys.argv[1:]
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if says == "busy":
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pass
sys.stdout.write(says)
sys.stdout.flush()
time.sleep(float(run_s) if run_s else 3600)
sys.exit(int(code))
"""


class ProcessBench:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def runtime(self) -> Runtime:
        logs = LogStore(self._folder / "logs")
        return ProcessRuntime(self._folder, logs, log_max_bytes=100_000, log_keep_files=3)

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, says: str = ""
    ) -> Launch:
        seconds = "" if run_s is None else str(run_s)
        words = (sys.executable, "-S", "-c", _PROGRAM, seconds, str(code), "1" if stubborn else "", says)
        return Launch(_id(), words, {"PATH": os.environ["PATH"]}, port=4711)


def _id() -> KernelId:
    return KernelId(SystemClock().new_id())


class DockerBench:
    """In an engine that all tests share: what this bench may see is its own."""

    def __init__(self, folder: Path, socket: Path) -> None:
        self._folder, self._socket = folder, socket
        self._runtimes: list[DockerRuntime] = []

    def runtime(self) -> Runtime:
        sealer = load_label_signer(self._folder / "docker.key", SystemClock())
        engine, logs = Engine(self._socket), LogStore(self._folder / "logs")
        clock = SystemClock()
        house = ImageGarbageCollector(
            engine, ImageGcRules(), PulledImages(self._folder / "images.json", clock), clock
        )
        runtime = DockerRuntime(
            engine, sealer, logs, rules=ContainerRules(), address="127.0.0.1", house=house
        )
        self._runtimes.append(runtime)
        return runtime

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, says: str = ""
    ) -> Launch:
        seconds = "" if run_s is None else str(run_s)
        words = ("python3", "-S", "-c", _PROGRAM, seconds, str(code), "1" if stubborn else "", says)
        return Launch(_id(), words, {}, port=free_port(), image=PYTHON_IMAGE, slots={"mem": 64 << 20})

    async def close(self) -> None:
        for runtime in self._runtimes:
            await runtime.close()


@pytest_asyncio.fixture(params=[FakeBench, ProcessBench, pytest.param(DockerBench, marks=pytest.mark.docker)])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    contained = request.param is DockerBench
    more = [request.getfixturevalue("docker_engine").socket] if contained else []
    bench: Bench = request.param(tmp_path, *more)
    yield bench
    runtime = bench.runtime()
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)
    assert await runtime.find() == {}
    if isinstance(bench, DockerBench):
        await bench.close()


async def until(runtime: Runtime, handle: Handle, *states: S, timeout_s: float = 10) -> None:
    """As the agent does it: look, then wait for a reason to look again."""
    async with asyncio.timeout(timeout_s):
        while (seen := await runtime.observe(handle)).state not in states:
            await runtime.wait(handle, seen.state)


async def eventually(true: Callable[[], Awaitable[bool]], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not await true():
            await asyncio.sleep(0.02)


async def test_what_is_created_runs_and_can_be_found(bench: Bench) -> None:
    runtime = bench.runtime()
    await runtime.probe()
    launch = bench.launch()
    await runtime.prepare(launch)
    assert await runtime.find() == {}
    handle = await runtime.create(launch)
    assert handle.runtime == runtime.name
    await until(runtime, handle, S.RUNNING)
    found = await runtime.find()
    assert list(found) == [launch.kernel_id]
    assert found[launch.kernel_id].port == launch.port > 0


async def test_creating_again_starts_nothing(bench: Bench) -> None:
    runtime = bench.runtime()
    launch = bench.launch()
    first = await runtime.create(launch)
    again, from_another = await runtime.create(launch), await bench.runtime().create(launch)
    assert first.state == again.state == from_another.state
    assert len(await runtime.find()) == 1


async def test_creating_at_the_same_moment_starts_one(bench: Bench) -> None:
    launch = bench.launch(says="once\n", run_s=0.3)
    handles = await asyncio.gather(
        *(bench.runtime().create(launch) for _ in range(4)), return_exceptions=True
    )
    handle, *others = (handle for handle in handles if isinstance(handle, Handle))
    assert all(other.state == handle.state for other in others)
    runtime = bench.runtime()
    await until(runtime, handle, S.EXITED)
    assert await runtime.log_tail(handle) == "once\n"


@pytest.mark.parametrize("code", [0, 3, 255])
async def test_the_exit_code_is_known(bench: Bench, code: int) -> None:
    runtime = bench.runtime()
    handle = await runtime.create(bench.launch(run_s=0, code=code))
    await until(runtime, handle, S.EXITED)
    seen = await runtime.observe(handle)
    assert (seen.exit_code, seen.oom, seen.refused) == (code, False, False)


async def test_stop_is_polite(bench: Bench) -> None:
    runtime = bench.runtime()
    handle = await runtime.create(bench.launch())
    await until(runtime, handle, S.RUNNING)
    await runtime.stop(handle, 30)
    await until(runtime, handle, S.EXITED)
    assert (await runtime.observe(handle)).exit_code == -signal.SIGTERM


async def test_after_the_grace_stop_is_a_kill(bench: Bench) -> None:
    runtime = bench.runtime()
    handle = await runtime.create(bench.launch(stubborn=True, says="up\n"))
    await eventually(lambda: _says(runtime, handle, "up"))  # only now does it ignore SIGTERM
    await runtime.stop(handle, 0.2)
    await until(runtime, handle, S.EXITED)
    assert (await runtime.observe(handle)).exit_code == -signal.SIGKILL


async def test_a_second_stop_hurries_the_first(bench: Bench) -> None:
    runtime = bench.runtime()
    handle = await runtime.create(bench.launch(stubborn=True, says="up\n"))
    await eventually(lambda: _says(runtime, handle, "up"))
    await runtime.stop(handle, 600)
    await runtime.stop(handle, 0)
    await until(runtime, handle, S.EXITED)


async def _says(runtime: Runtime, handle: Handle, word: str) -> bool:
    return word in await runtime.log_tail(handle)


async def test_destroy_ends_and_removes_all_and_may_be_repeated(bench: Bench) -> None:
    runtime = bench.runtime()
    handle = await runtime.create(bench.launch(stubborn=True, says="last words\n"))
    await eventually(lambda: _says(runtime, handle, "last words"))
    for _ in range(3):
        await runtime.destroy(handle)
        assert (await runtime.observe(handle)).state is S.GONE
    assert await runtime.find() == {}
    assert await runtime.log_tail(handle) == "last words\n"


async def test_stop_and_wait_of_what_is_gone_do_nothing(bench: Bench) -> None:
    runtime = bench.runtime()
    handle = await runtime.create(bench.launch())
    await runtime.destroy(handle)
    await runtime.stop(handle, 1)
    async with asyncio.timeout(2):
        await runtime.wait(handle, S.GONE)


async def test_a_kernel_outlives_its_agent_and_its_exit_is_still_known(bench: Bench) -> None:
    launch = bench.launch(run_s=0.5, code=7)
    before = await bench.runtime().create(launch)
    runtime = bench.runtime()
    found = (await runtime.find())[launch.kernel_id]
    assert found.state == before.state
    await until(runtime, before, S.RUNNING)
    await until(runtime, found, S.EXITED)
    assert (await bench.runtime().observe(before)).exit_code == 7
    assert list(await bench.runtime().find()) == [launch.kernel_id]  # ended, but not forgotten


async def test_wait_returns_when_it_ends(bench: Bench) -> None:
    runtime = bench.runtime()
    handle = await runtime.create(bench.launch())
    await until(runtime, handle, S.RUNNING)
    waiting = asyncio.create_task(runtime.wait(handle, S.RUNNING))
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    await runtime.stop(handle, 5)
    async with asyncio.timeout(5):
        await waiting
    await until(runtime, handle, S.EXITED)


async def test_logs_whole_tail_and_followed(bench: Bench) -> None:
    text = "".join(f"line {number}\n" for number in range(100))
    runtime = bench.runtime()
    handle = await runtime.create(bench.launch(says=text))
    await eventually(lambda: _says(runtime, handle, "line 99"))
    assert b"".join([part async for part in runtime.logs(handle)]).decode() == text
    last = b"".join([part async for part in runtime.logs(handle, tail_lines=2)])
    assert last == b"line 98\nline 99\n"
    assert await runtime.log_tail(handle, max_bytes=20) == "line 98\nline 99\n"

    async def follow() -> bytes:
        return b"".join([part async for part in runtime.logs(handle, tail_lines=1, follow=True)])

    following = asyncio.create_task(follow())
    done, _ = await asyncio.wait([following], timeout=0.2)
    assert not done
    await runtime.stop(handle, 5)
    async with asyncio.timeout(5):
        assert await following == b"line 99\n"


async def test_many_at_a_time(bench: Bench) -> None:
    runtime = bench.runtime()
    handles = await asyncio.gather(*(runtime.create(bench.launch(run_s=0.1, code=n)) for n in range(8)))
    await asyncio.gather(*(until(runtime, handle, S.EXITED) for handle in handles))
    assert [(await runtime.observe(handle)).exit_code for handle in handles] == list(range(8))


async def test_what_it_uses(bench: Bench) -> None:
    runtime = bench.runtime()
    one, other = bench.launch(says="busy"), bench.launch(says="busy")
    handles = {launch.kernel_id: await runtime.create(launch) for launch in (one, other)}
    for handle in handles.values():
        await until(runtime, handle, S.RUNNING)

    async def measured() -> bool:
        found = await runtime.usage(handles)
        return set(found) == set(handles) and all(c.cpu_us > 0 and c.memory > 0 for c in found.values())

    await eventually(measured)
    assert not set.intersection(*(set(c.pids) for c in (await runtime.usage(handles)).values()))
    # An agent that has just started knows as much.
    again = await bench.runtime().usage({one.kernel_id: handles[one.kernel_id]})
    assert set(again) == {one.kernel_id}
    await runtime.stop(handles[one.kernel_id], 0)
    await runtime.destroy(handles[one.kernel_id])
    assert set(await runtime.usage(handles)) == {other.kernel_id}
