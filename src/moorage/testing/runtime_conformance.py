"""Conformance suite for the runtime interface, for the built-in runtimes and those of plug-ins.

A test module derives a class from ``RuntimeConformance`` and defines a fixture ``new_harness`` for
it.
"""

from __future__ import annotations

import asyncio
import io
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, cast

import pytest
import pytest_asyncio

from moorage.agent.runtimes import Handle, Launch, Runtime
from moorage.agent.runtimes.base import BatchRuntime
from moorage.agent.runtimes.execution import Command, Copy, ExecFailed
from moorage.agent.runtimes.signals import Signalling, SignalRefused
from moorage.agent.runtimes.suspension import Suspending
from moorage.common import archive
from moorage.common.aio.clock import SystemClock
from moorage.common.aio.tasks import spawn
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.model.runtimes import is_custom, traits_of
from moorage.common.model.status import ObservedState as S

# How long to wait for a runtime whose kernels take seconds to start on a busy machine.
TIMEOUT_S = 30.0


class RuntimeHarness(Protocol):
    """A node under test. Each ``runtime()`` represents an agent before or after a restart."""

    def runtime(self) -> Runtime: ...

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, output: str = ""
    ) -> Launch:
        """The launch of a kernel that prints ``output``, runs for ``run_s`` seconds (None means
        until it is stopped) and exits with ``code``. ``stubborn``: it ignores SIGTERM. With the
        ``output`` "busy", it also uses the processor for 0.1 s."""
        ...

    async def close(self) -> None: ...


@asynccontextmanager
async def used(harness: RuntimeHarness) -> AsyncIterator[None]:
    """Yield the harness; afterwards, destroy all kernels and close it."""
    yield
    runtime = harness.runtime()
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)
    assert await runtime.find() == {}
    await harness.close()


async def until(runtime: Runtime, handle: Handle, *states: S, timeout_s: float = TIMEOUT_S) -> None:
    """Observe as the agent does: once, then after each reason to observe again."""
    async with asyncio.timeout(timeout_s):
        while (observation := await runtime.observe(handle)).state not in states:
            await runtime.wait(handle, observation.state)


async def eventually(
    condition: Callable[[], Awaitable[bool]], timeout_s: float = TIMEOUT_S
) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.02)


async def log_contains(runtime: Runtime, handle: Handle, word: str) -> bool:
    return word in await runtime.log_tail(handle)


async def send(runtime: BatchRuntime, handle: Handle, source: Path, path: str) -> None:
    sink = io.BytesIO()
    archive.pack(source, sink, lambda _: None)
    copying = await runtime.copy(handle, Copy(True, path, source.name))
    try:
        for at in range(0, sink.tell(), 32768):
            await copying.write(sink.getvalue()[at : at + 32768])

        await copying.end_input()
        assert await copying.read() is None
        assert await copying.wait() == 0
    finally:
        copying.disconnect()


async def fetch(runtime: BatchRuntime, handle: Handle, path: str, into: Path) -> bytes:
    copying = await runtime.copy(handle, Copy(False, path))
    data = b""
    try:
        while (piece := await copying.read()) is not None:
            data += piece[1]
    finally:
        copying.disconnect()

    archive.unpack(
        io.BytesIO(data),
        into,
        top="",
        report=lambda _: None,
        limits=archive.ArchiveLimits(10_000_000),
    )
    return into.read_bytes() if into.is_file() else b""


class RuntimeConformance:
    """Tests that every runtime passes. ``new_harness``: a fixture in the class or its module."""

    @pytest_asyncio.fixture
    async def harness(self, new_harness: RuntimeHarness) -> AsyncIterator[RuntimeHarness]:
        async with used(new_harness):
            yield new_harness

    async def test_created_kernel_runs_and_is_found(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        await runtime.probe()
        launch = harness.launch()
        await runtime.prepare(launch)
        assert await runtime.find() == {}

        handle = await runtime.create(launch)
        assert handle.runtime == runtime.name
        await until(runtime, handle, S.RUNNING)

        found = await runtime.find()
        assert list(found) == [launch.kernel_id]
        assert found[launch.kernel_id].port == launch.port
        assert bool(launch.port) is not runtime.capabilities.own_address

    async def test_table_of_runtimes_tells_what_the_runtime_tells(
        self, harness: RuntimeHarness
    ) -> None:
        runtime = harness.runtime()
        if is_custom(runtime.name):
            return

        capabilities = runtime.capabilities
        traits = traits_of(runtime.name)
        assert (capabilities.images, capabilities.contained) == (traits.images, traits.own_network)
        assert capabilities.node_processes is bool(traits.isolated_as)
        assert capabilities.max_jobs is None or traits.site_jobs
        assert capabilities.service_ports is traits.service_ports
        assert capabilities.signals is traits.signals

    async def test_signal_without_a_handler_does_not_end_the_program(
        self, harness: RuntimeHarness
    ) -> None:
        runtime = harness.runtime()
        if not runtime.capabilities.signals:
            return

        assert isinstance(runtime, Signalling)
        handle = await runtime.create(harness.launch(output="up\n"))
        await until(runtime, handle, S.RUNNING)
        await eventually(lambda: log_contains(runtime, handle, "up"))
        with pytest.raises(SignalRefused):
            await runtime.signal(handle, "USR2")

        assert (await runtime.observe(handle)).state is S.RUNNING

    async def test_suspended_kernel_does_not_end_before_it_is_resumed(
        self, harness: RuntimeHarness
    ) -> None:
        runtime = harness.runtime()
        if not runtime.capabilities.suspension:
            return

        assert isinstance(runtime, Suspending)
        handle = await runtime.create(harness.launch(run_s=0.5, code=3))
        await until(runtime, handle, S.RUNNING)
        await runtime.suspend(handle)
        await runtime.suspend(handle)
        again = harness.runtime()  # of a restarted agent
        assert isinstance(again, Suspending)
        with pytest.raises(TimeoutError):
            await until(again, handle, S.EXITED, timeout_s=1.5)

        await again.resume(handle)
        await again.resume(handle)
        await until(again, handle, S.EXITED)
        assert (await again.observe(handle)).exit_code == 3

    async def test_suspended_kernel_can_be_destroyed(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        if not runtime.capabilities.suspension:
            return

        assert isinstance(runtime, Suspending)
        handle = await runtime.create(harness.launch())
        await until(runtime, handle, S.RUNNING)
        await runtime.suspend(handle)
        await runtime.destroy(handle)
        assert await runtime.find() == {}
        assert (await runtime.observe(handle)).state is S.GONE
        await runtime.suspend(handle)
        await runtime.resume(handle)

    async def test_create_is_idempotent(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        launch = harness.launch()
        first = await runtime.create(launch)
        again = await runtime.create(launch)
        from_another = await harness.runtime().create(launch)
        assert first.state == again.state == from_another.state
        assert len(await runtime.find()) == 1

    async def test_concurrent_creates_start_one_kernel(self, harness: RuntimeHarness) -> None:
        launch = harness.launch(output="once\n", run_s=0.3)
        handles = await asyncio.gather(
            *(harness.runtime().create(launch) for _ in range(4)), return_exceptions=True
        )
        handle, *others = (handle for handle in handles if isinstance(handle, Handle))
        assert all(other.state == handle.state for other in others)
        runtime = harness.runtime()
        await until(runtime, handle, S.EXITED)
        assert await runtime.log_tail(handle) == "once\n"

    @pytest.mark.parametrize("code", [0, 3, 255])
    async def test_exit_code_is_reported(self, harness: RuntimeHarness, code: int) -> None:
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch(run_s=0, code=code))
        await until(runtime, handle, S.EXITED)
        observation = await runtime.observe(handle)
        assert (observation.exit_code, observation.oom, observation.never_started) == (
            code,
            False,
            False,
        )

    async def test_stop_sends_the_stop_signal(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch())
        await until(runtime, handle, S.RUNNING)
        await runtime.stop(handle, 30)
        await until(runtime, handle, S.EXITED)
        assert (await runtime.observe(handle)).exit_code == -signal.SIGTERM

    async def test_kernel_is_killed_after_the_grace_period(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch(stubborn=True, output="up\n"))
        # from now on it ignores SIGTERM
        await eventually(lambda: log_contains(runtime, handle, "up"))
        await runtime.stop(handle, 0.2)
        await until(runtime, handle, S.EXITED)
        assert (await runtime.observe(handle)).exit_code == -signal.SIGKILL

    async def test_second_stop_shortens_the_grace_period(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch(stubborn=True, output="up\n"))
        await eventually(lambda: log_contains(runtime, handle, "up"))
        await runtime.stop(handle, 600)
        await runtime.stop(handle, 0)
        await until(runtime, handle, S.EXITED)

    async def test_destroy_removes_everything_but_the_log_and_is_idempotent(
        self, harness: RuntimeHarness
    ) -> None:
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch(stubborn=True, output="last words\n"))
        await eventually(lambda: log_contains(runtime, handle, "last words"))
        for _ in range(3):
            await runtime.destroy(handle)
            assert (await runtime.observe(handle)).state is S.GONE

        assert await runtime.find() == {}
        assert await runtime.log_tail(handle) == "last words\n"

    async def test_stop_and_wait_have_no_effect_on_a_gone_kernel(
        self, harness: RuntimeHarness
    ) -> None:
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch())
        await runtime.destroy(handle)
        await runtime.stop(handle, 1)
        async with asyncio.timeout(2):
            await runtime.wait(handle, S.GONE)

    async def test_kernel_outlives_its_agent_and_keeps_its_exit_code(
        self, harness: RuntimeHarness
    ) -> None:
        launch = harness.launch(run_s=0.5, code=7)
        before = await harness.runtime().create(launch)
        runtime = harness.runtime()
        found = (await runtime.find())[launch.kernel_id]
        assert found.state == before.state
        await until(runtime, before, S.RUNNING)
        await until(runtime, found, S.EXITED)
        assert (await harness.runtime().observe(before)).exit_code == 7

        # exited, but not destroyed
        assert list(await harness.runtime().find()) == [launch.kernel_id]

    async def test_wait_returns_when_the_kernel_exits(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch())
        await until(runtime, handle, S.RUNNING)
        waiting = spawn("wait", runtime.wait(handle, S.RUNNING))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        await runtime.stop(handle, 5)
        async with asyncio.timeout(5):
            await waiting

        await until(runtime, handle, S.EXITED)

    async def test_logs_complete_tail_and_follow(self, harness: RuntimeHarness) -> None:
        text = "".join(f"line {number}\n" for number in range(100))
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch(output=text))
        await eventually(lambda: log_contains(runtime, handle, "line 99"))
        assert b"".join([part async for part in runtime.logs(handle)]).decode() == text
        last = b"".join([part async for part in runtime.logs(handle, tail_lines=2)])
        assert last == b"line 98\nline 99\n"
        assert await runtime.log_tail(handle, max_bytes=20) == "line 98\nline 99\n"

        async def follow() -> bytes:
            return b"".join(
                [part async for part in runtime.logs(handle, tail_lines=1, follow=True)]
            )

        following = spawn("follow", follow())
        done, _ = await asyncio.wait([following], timeout=0.2)
        assert not done
        await runtime.stop(handle, 5)
        async with asyncio.timeout(5):
            assert await following == b"line 99\n"

    async def test_concurrent_kernels(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        handles = await asyncio.gather(
            *(runtime.create(harness.launch(run_s=0.1, code=n)) for n in range(8))
        )
        await asyncio.gather(*(until(runtime, handle, S.EXITED) for handle in handles))
        assert [(await runtime.observe(handle)).exit_code for handle in handles] == list(range(8))

    async def test_usage(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        first = harness.launch(output="busy")
        other = harness.launch(output="busy")
        handles = {launch.kernel_id: await runtime.create(launch) for launch in (first, other)}
        for handle in handles.values():
            await until(runtime, handle, S.RUNNING)

        if not runtime.capabilities.usage:
            assert await runtime.usage(handles) == {}
            return

        async def measured() -> bool:
            found = await runtime.usage(handles)
            return set(found) == set(handles) and all(
                c.cpu_us > 0 and c.memory > 0 for c in found.values()
            )

        await eventually(measured)
        assert not set.intersection(*(set(c.pids) for c in (await runtime.usage(handles)).values()))

        # A restarted agent reports the same kernel.
        again = await harness.runtime().usage({first.kernel_id: handles[first.kernel_id]})
        assert set(again) == {first.kernel_id}
        await runtime.stop(handles[first.kernel_id], 0)
        await runtime.destroy(handles[first.kernel_id])
        assert set(await runtime.usage(handles)) == {other.kernel_id}

    async def test_jobs_of_a_site_are_queued_and_their_end_is_known(
        self, harness: RuntimeHarness
    ) -> None:
        runtime = harness.runtime()
        handle = await runtime.create(harness.launch())
        seen = [await runtime.observe(handle)]
        async with asyncio.timeout(30):
            while seen[-1].state is not S.RUNNING:
                await runtime.wait(handle, seen[-1].state)
                seen.append(await runtime.observe(handle))

        if not runtime.capabilities.batch:
            assert S.QUEUED not in [observed.state for observed in seen]
            assert (seen[-1].ends_at, seen[-1].expected_start) == (None, None)
            return

        assert runtime.silence_grace_s >= 86_400  # the runtime's jobs outlive a silent agent
        assert all(
            observed.detail for observed in seen if observed.state is S.QUEUED
        )  # the site's reason
        now = SystemClock().now().timestamp()
        ends_at = seen[-1].ends_at
        assert ends_at is not None
        assert now < ends_at <= now + 125

    async def test_files_in_and_out_of_a_kernel_that_runs_no_commands(
        self, harness: RuntimeHarness, tmp_path: Path
    ) -> None:
        """Test that whole directories need ``directories_in``, and that no path leaves the kernel's
        directory."""
        runtime = harness.runtime()
        assert runtime.capabilities.exec or runtime.capabilities.files
        if not runtime.capabilities.files:
            return

        site = cast(BatchRuntime, runtime)
        handle = await runtime.create(harness.launch())
        await until(runtime, handle, S.RUNNING, timeout_s=30)
        folder = tmp_path / "source"
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "file").write_bytes(bytes(range(256)) * 1000)
        await send(site, handle, folder / "sub" / "file", "mine.bin")
        assert (
            await fetch(site, handle, "mine.bin", tmp_path / "back")
            == (folder / "sub" / "file").read_bytes()
        )

        if runtime.capabilities.directories_in:
            await send(site, handle, folder, ".")
            await send(site, handle, folder / "sub" / "file", "source/sub/other")
            await fetch(site, handle, "source", tmp_path / "tree")
            assert sorted(p.name for p in (tmp_path / "tree").rglob("*")) == [
                "file",
                "other",
                "sub",
            ]
        else:
            with pytest.raises(InvalidInput, match="director"):
                await send(site, handle, folder, ".")
            with pytest.raises(InvalidInput, match="director"):
                await send(site, handle, folder / "sub" / "file", "source/sub/other")

        for path in ("../mine.bin", "/etc/hostname", "a/../../x", "/"):
            with pytest.raises(InvalidInput):
                await fetch(site, handle, path, tmp_path / "never")
            with pytest.raises(InvalidInput):
                await send(site, handle, folder / "sub" / "file", path)

        with pytest.raises(NotFound):
            await fetch(site, handle, "absent", tmp_path / "never")

        assert (await runtime.observe(handle)).state is S.RUNNING

    async def test_what_a_runtime_cannot_do_is_refused(self, harness: RuntimeHarness) -> None:
        runtime = harness.runtime()
        if runtime.capabilities.exec:
            return
        handle = await runtime.create(harness.launch())
        await until(runtime, handle, S.RUNNING, timeout_s=30)
        with pytest.raises(ExecFailed, match=runtime.name):
            await runtime.exec(handle, Command(("true",)))
