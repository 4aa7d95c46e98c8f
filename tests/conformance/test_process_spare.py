"""A supervisor that was started ahead: it is used, it leaves no trace, and nothing depends on it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.agent.runtimes import Handle, Launch, ProcessRuntime, procfs
from moorage.agent.runtimes.base import KERNEL_ID_VAR, OWNER_VAR
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S


def waiting() -> list[int]:
    """The spares that this process has started and that wait."""
    found = []
    for pid in procfs.pids():
        now = procfs.stat(pid)
        if now is not None and now.ppid == os.getpid() and now.alive:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found += [pid] if b"--spare" in words and KERNEL_ID_VAR not in (procfs.environ(pid) or {}) else []
    return found


async def settled(count: int) -> list[int]:
    async with asyncio.timeout(10):
        while len(found := waiting()) != count:
            await asyncio.sleep(0.02)
    return found


def launch(*words: str) -> Launch:
    return Launch(KernelId(SystemClock().new_id()), words, {"PATH": os.environ["PATH"], "MINE": "a=b c"})


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    assert waiting() == []
    made = ProcessRuntime(tmp_path, LogStore(tmp_path / "logs"), log_max_bytes=1 << 20, log_keep_files=1)
    await made.probe()
    yield made
    for handle in (await made.find()).values():
        await made.destroy(handle)
    made.close()
    await settled(0)


async def says(runtime: ProcessRuntime, handle: Handle) -> str:
    async with asyncio.timeout(10):
        while (await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, S.RUNNING)
    return await runtime.log_tail(handle)


async def test_it_becomes_the_supervisor_of_the_next_kernel(runtime: ProcessRuntime, tmp_path: Path) -> None:
    [spare] = await settled(1)
    order = launch("sleep", "60")
    handle = await runtime.create(order)
    assert handle.state["shim_pid"] == spare
    # Whoever looks at it sees what he would see of any other supervisor.
    env = procfs.environ(spare) or {}
    assert (env[KERNEL_ID_VAR], env[OWNER_VAR]) == (order.kernel_id, str(tmp_path))
    assert "MOORAGE_SPARE" not in env
    again = ProcessRuntime(tmp_path, LogStore(tmp_path / "logs"), log_max_bytes=1 << 20, log_keep_files=1)
    assert (await again.find())[order.kernel_id].state["shim_pid"] == spare
    await settled(1)  # and there is another


async def test_its_kernel_gets_its_own_environment_and_nothing_else(runtime: ProcessRuntime) -> None:
    await settled(1)
    said = await says(runtime, await runtime.create(launch("env")))
    told = dict(line.split("=", 1) for line in said.splitlines())
    assert told.pop("MINE") == "a=b c"
    assert set(told) == {"PATH", KERNEL_ID_VAR, OWNER_VAR, "MOORAGE_PORT"}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_one_that_was_killed_is_done_without(runtime: ProcessRuntime, how: signal.Signals) -> None:
    [spare] = await settled(1)
    os.kill(spare, how)
    async with asyncio.timeout(10):
        while (now := procfs.stat(spare)) and now.alive:
            await asyncio.sleep(0.01)
    assert await says(runtime, await runtime.create(launch("echo", "all the same"))) == "all the same\n"


async def test_it_ends_with_its_agent(runtime: ProcessRuntime) -> None:
    await settled(1)
    runtime.close()
    await settled(0)
