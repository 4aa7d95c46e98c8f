"""Prestarted shim: it runs the next kernel, looks like any other shim, and is optional."""

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


def waiting_shims() -> list[int]:
    """Pids of the prestarted shims of this process that wait for a kernel."""
    found = []
    for pid in procfs.pids():
        stat = procfs.stat(pid)
        if stat is not None and stat.ppid == os.getpid() and stat.alive:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"process_shim" in argv and KERNEL_ID_VAR not in (procfs.environ(pid) or {}):
                found.append(pid)
    return found


async def until_waiting(count: int) -> list[int]:
    async with asyncio.timeout(10):
        while len(found := waiting_shims()) != count:
            await asyncio.sleep(0.02)
    return found


def launch(*argv: str) -> Launch:
    return Launch(
        KernelId(SystemClock().new_id()), argv, {"PATH": os.environ["PATH"], "MINE": "a=b c"}
    )


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    await until_waiting(0)  # that of the runtime before is ending
    runtime = ProcessRuntime(
        tmp_path, LogStore(tmp_path / "logs"), log_max_bytes=1 << 20, log_keep_files=1
    )
    await runtime.probe()
    yield runtime
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)

    runtime.close()
    await until_waiting(0)


async def output(runtime: ProcessRuntime, handle: Handle) -> str:
    async with asyncio.timeout(10):
        while (await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, S.RUNNING)
    return await runtime.log_tail(handle)


async def test_prestarted_shim_supervises_the_next_kernel(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    [pid] = await until_waiting(1)
    order = launch("sleep", "60")
    handle = await runtime.create(order)
    assert handle.state["shim_pid"] == pid

    # It is found by its environment like any other shim.
    env = procfs.environ(pid) or {}
    assert (env[KERNEL_ID_VAR], env[OWNER_VAR]) == (order.kernel_id, str(tmp_path))
    assert "MOORAGE_ENV_PADDING" not in env
    again = ProcessRuntime(
        tmp_path, LogStore(tmp_path / "logs"), log_max_bytes=1 << 20, log_keep_files=1
    )
    assert (await again.find())[order.kernel_id].state["shim_pid"] == pid
    await until_waiting(1)  # the next one


async def test_kernel_gets_exactly_its_own_environment(runtime: ProcessRuntime) -> None:
    await until_waiting(1)
    text = await output(runtime, await runtime.create(launch("env")))
    env = dict(line.split("=", 1) for line in text.splitlines())
    assert env.pop("MINE") == "a=b c"
    assert set(env) == {"PATH", KERNEL_ID_VAR, OWNER_VAR, "MOORAGE_PORT"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_kernel_starts_without_the_prestarted_shim(
    runtime: ProcessRuntime, number: signal.Signals
) -> None:
    [pid] = await until_waiting(1)
    os.kill(pid, number)
    async with asyncio.timeout(10):
        while (stat := procfs.stat(pid)) and stat.alive:
            await asyncio.sleep(0.01)
    assert await output(runtime, await runtime.create(launch("echo", "started"))) == "started\n"


async def test_order_that_a_killed_shim_has_not_read_is_given_to_another_one(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that another thread is starting has copies of the pipes until it executes: the
    order is written, and lost."""
    copies: list[int] = []
    pipe2 = os.pipe2

    def copied(flags: int) -> tuple[int, int]:
        pipe = pipe2(flags)
        copies.extend(os.dup(end) for end in pipe)
        return pipe

    await until_waiting(1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe2", copied)
        await output(runtime, await runtime.create(launch("true")))
        [pid] = await until_waiting(1)

    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        while (stat := procfs.stat(pid)) and stat.alive:
            await asyncio.sleep(0.01)

    creating = asyncio.create_task(runtime.create(launch("echo", "started")))
    await asyncio.sleep(0.3)
    for end in copies:
        os.close(end)

    assert await output(runtime, await creating) == "started\n"


async def test_prestarted_shim_exits_with_its_agent(runtime: ProcessRuntime) -> None:
    await until_waiting(1)
    runtime.close()
    await until_waiting(0)
