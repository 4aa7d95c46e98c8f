"""Program reloads by the agent: signals to real processes, requests, acknowledgements, and their
order."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from tests.addresses import free_port

from moorage.agent.engines import NodeInfo
from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.kernel.checkpoint import CheckpointFiles, KernelRecord
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.launch import progress_file
from moorage.agent.kernel.leases import KernelLeases
from moorage.agent.kernel.reload import Reloading, reload
from moorage.agent.runtimes import FakeRuntime, Handle, RuntimeFailed, procfs
from moorage.agent.runtimes.docker.signals import handles
from moorage.agent.runtimes.process.signals import deliver
from moorage.agent.runtimes.signals import SignalRefused
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import PortAllocator
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelReload, KernelSpec, Reloaded
from moorage.common.model.service_ports import AppPort
from moorage.common.model.status import ObservedState, SessionType

KERNEL = KernelId("11111111-2222-3333-4444-555555555555")
SESSION = SessionId("s")


class Signals(FakeRuntime):
    """Handles signals while ``open`` is set. ``writes``: the text that the program then appends to
    its progress."""

    def __init__(self, root: Path) -> None:
        super().__init__(LogStore(root / "logs"))
        self.sent: list[str] = []
        self.open = asyncio.Event()
        self.began = asyncio.Event()
        self.open.set()
        self.progress = root / progress_file(KERNEL)
        self.writes = ""
        self.capabilities = replace(self.capabilities, node_processes=True)
        self.failure: Exception | None = None

    def work_dir(self, kernel_id: KernelId) -> Path:
        return self.progress.parent

    async def signal(self, handle: Handle, name: str) -> None:
        self.sent.append(name)
        self.began.set()
        if self.failure is not None:
            raise self.failure
        await self.open.wait()
        with self.progress.open("a") as file:
            file.write(self.writes)


def context_of(root: Path, runtime: Signals) -> AgentContext:
    clock = SystemClock()
    return AgentContext(
        clock=clock,
        checkpoint=CheckpointFiles(root),
        ports=PortAllocator("22000-22099", "127.0.0.1", clock=clock),
        logs=LogStore(root / "logs"),
        runtimes={"fake": runtime},
        node=NodeInfo(),
        host="127.0.0.1",
        process_dir=lambda kernel_id: root,
        workspaces=Workspaces(root),
        leases=KernelLeases(root, clock),
    )


def record_of(how: KernelReload | None, **more: object) -> KernelRecord:
    spec = KernelSpec(
        KERNEL,
        SESSION,
        session_name="n",
        session_type=SessionType.BATCH,
        runtime="fake",
        engine="custom",
        served_name="n",
        reload=how,
    )
    return KernelRecord(replace(spec, **more), 0.0, handle=Handle("fake", {}))  # type: ignore[arg-type]


def seen(**more: object) -> Observation:
    return Observation(KERNEL, SESSION, ObservedState.RUNNING, **more)  # type: ignore[arg-type]


HUP = KernelReload(signal="HUP", timeout_s=5)
BY_PROGRESS = replace(HUP, acknowledge="progress")


@pytest.mark.parametrize(
    ("how", "writes", "outcome", "detail"),
    [
        (HUP, "", "reloaded", ""),
        (BY_PROGRESS, '{"fraction": 0.5}\n{"reloaded": true}\n', "reloaded", ""),
        (BY_PROGRESS, '{"reloaded": false, "message": "line 3"}\n', "failed", "line 3"),
        (BY_PROGRESS, 'nonsense\n[1]\n{"reloaded": 1}\n{"reloaded": true}\n', "reloaded", ""),
        (replace(BY_PROGRESS, timeout_s=0.3), '{"reloaded": true}', "timed-out", "within 0.3 s"),
        (None, "", "failed", "no `reload`"),
    ],
)
async def test_acknowledgement(
    tmp_path: Path, how: KernelReload | None, writes: str, outcome: str, detail: str
) -> None:
    runtime = Signals(tmp_path)
    runtime.progress.write_text('{"reloaded": true}\n')  # from an earlier reload
    runtime.writes = writes
    found = await reload(context_of(tmp_path, runtime), record_of(how), seen(), 7)
    assert (found.generation, found.outcome) == (7, outcome), found
    assert detail in found.detail


@pytest.mark.parametrize(
    "failure", [SignalRefused("it has no handler"), RuntimeFailed("no answer"), OSError("no /proc")]
)
async def test_failure_of_the_runtime_is_an_outcome(tmp_path: Path, failure: Exception) -> None:
    runtime = Signals(tmp_path)
    runtime.failure = failure
    found = await reload(context_of(tmp_path, runtime), record_of(HUP), seen(), 1)
    assert found == Reloaded(1, "failed", str(failure))


async def test_detail_of_a_failure_is_bounded(tmp_path: Path) -> None:
    runtime = Signals(tmp_path)
    runtime.failure = RuntimeFailed("x" * 1000)
    assert (
        len((await reload(context_of(tmp_path, runtime), record_of(HUP), seen(), 1)).detail) == 300
    )


async def test_runtime_without_signals_is_named(tmp_path: Path) -> None:
    runtime = Signals(tmp_path)
    runtime.capabilities = replace(runtime.capabilities, signals=False)
    found = await reload(context_of(tmp_path, runtime), record_of(HUP), seen(), 1)
    assert (found.outcome, "fake cannot send signals" in found.detail) == ("failed", True)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[int, list[tuple[str, str]]]]:
    """A server whose paths end with the status that they return, and the requests that it
    received."""
    requests: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(
            (f"{request.method} {request.path}", request.headers.get("Authorization", ""))
        )
        status = int(request.path[-3:])
        headers = {"Location": "/r/200"} if status == 302 else {}
        return web.Response(status=status, text="line 3:\n  no such thing", headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()

    try:
        yield port, requests
    finally:
        await runner.cleanup()


async def test_requests_go_to_the_named_port(tmp_path: Path) -> None:
    context = context_of(tmp_path, Signals(tmp_path))
    async with served() as (port, requests):
        apps = (AppPort("web", port, "http", True, port, True), AppPort("db", 1, "tcp"))
        where = seen(host="127.0.0.1", port=port, apps=apps)
        record = record_of(KernelReload(path="/r/204", port="web"), secret="key")
        assert await reload(context, record, where, 1) == Reloaded(1, "reloaded")
        assert requests == [("POST /apps/s/web/r/204", "Bearer key")]
        serving = record_of(KernelReload(path="/r/200"), secret="key", probe_path="/")
        assert await reload(context, serving, where, 2) == Reloaded(2, "reloaded")
        assert requests[1] == ("POST /r/200", "Bearer key")
        only = record_of(KernelReload(path="/r/500"))
        failed = await reload(context, only, where, 3)
        assert (failed.outcome, failed.detail) == (
            "failed",
            "POST /r/500 answered 500 line 3: no such thing",
        )
        redirected = await reload(context, record_of(KernelReload(path="/r/302")), where, 4)
        assert redirected.outcome == "failed"
        assert requests[-1][0] == "POST /apps/s/web/r/302", (
            "the program does not choose what the agent asks"
        )

    gone = await reload(context, only, where, 5)
    assert (gone.outcome, gone.detail.startswith("POST /r/500: ")) == ("failed", True)
    missing = await reload(context, only, seen(), 6)
    assert (missing.outcome, "0 service ports" in missing.detail) == ("failed", True)


async def test_requests_that_come_meanwhile_make_one_more_reload(tmp_path: Path) -> None:
    runtime = Signals(tmp_path)
    runtime.open.clear()
    wakeup = asyncio.Event()
    reloading = Reloading(context_of(tmp_path, runtime), wakeup)
    record = record_of(HUP)

    async def ended() -> KernelRecord:
        async with asyncio.timeout(10):
            while (found := reloading.advance(record, seen())) is record:
                wakeup.clear()
                await wakeup.wait()
        return found

    for generation in (3, 4, 5):
        reloading.want(generation)

    assert reloading.advance(record, seen()) is record
    await runtime.began.wait()
    for generation in (6, 9, 8):
        reloading.want(generation)
        assert reloading.advance(record, seen()) is record

    runtime.open.set()
    record = await ended()
    assert (record.reload, record.spec.reload_generation) == (Reloaded(5, "reloaded"), 5)
    record = await ended()
    assert record.reload == Reloaded(9, "reloaded")
    assert reloading.advance(record, seen()) is record
    assert runtime.sent == ["HUP", "HUP"]
    await reloading.stop()


async def test_stop_cancels_the_reload_that_runs(tmp_path: Path) -> None:
    runtime = Signals(tmp_path)
    runtime.writes = "written"
    runtime.open.clear()
    reloading = Reloading(context_of(tmp_path, runtime), asyncio.Event())
    record = record_of(HUP)
    reloading.want(1)
    reloading.advance(record, seen())
    await runtime.began.wait()
    others = asyncio.all_tasks()
    await reloading.stop()
    assert len(asyncio.all_tasks()) == len(others) - 1
    assert not runtime.progress.exists()


PROGRAMS = {
    "handler": "signal.signal(signal.SIGHUP, lambda *_: print('got', flush=True))",
    "slow": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])",
    "none": "pass",
    "ignored": "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
}


@asynccontextmanager
async def program(
    setup: str, then: str = "while True: time.sleep(60)"
) -> AsyncIterator[tuple[int, int]]:
    """A real process that runs ``setup`` first: its pid and start time."""
    source = f"import signal, time\n{setup}\nprint('ready', flush=True)\n{then}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None

    try:
        assert await process.stdout.readline() == b"ready\n"
        stat = procfs.stat(process.pid)
        assert stat is not None
        yield process.pid, stat.start
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_signal_is_sent_to_a_program_that_handles_it() -> None:
    async with program(PROGRAMS["handler"]) as (pid, start):
        await deliver(pid, start, "HUP")
        assert procfs.alive(pid, start)


@pytest.mark.parametrize("kind", ["none", "ignored"])
async def test_program_without_a_handler_gets_no_signal(kind: str) -> None:
    async with program(PROGRAMS[kind]) as (pid, start):
        with pytest.raises(SignalRefused, match="no handler for SIGHUP"):
            await deliver(pid, start, "HUP")
        assert procfs.alive(pid, start), "the signal would have ended it"


async def test_program_that_waits_for_signals_has_handled_it_once_it_took_it() -> None:
    take = "time.sleep(0.5); signal.sigwait([signal.SIGHUP]); time.sleep(60)"
    async with program(PROGRAMS["slow"], take) as (pid, start):
        await deliver(pid, start, "HUP")
        sets = procfs.signal_sets(pid)
        assert sets is not None
        assert not sets.has(sets.pending, signal.SIGHUP)


async def test_another_process_with_the_same_pid_gets_no_signal() -> None:
    async with program(PROGRAMS["handler"]) as (pid, start):
        with pytest.raises(SignalRefused, match="has ended"):
            await deliver(pid, start + 1, "HUP")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["9", "1", "0", "0"], ["10", "9", "0000000000000001", "0"]], True),
        ([["9", "1", "0000000000000001", "0"], ["10", "9", "0000000000000002", "0"]], False),
        ([["9", "1", "0", "0"], ["10", "9", "0", "0000000000000001"]], True),
        ([["9", "1", "0", "0"], ["12", "9", "1", "0"], ["10", "9", "0", "0"]], False),
        ([["9", "1", "0", "0"]], True),
        ([["9", "1", "0", "0"], ["10", "9", "<0000000000000001", "0"]], True),
    ],
)
def test_handlers_of_the_main_program_of_a_container(rows: list[list[str]], expected: bool) -> None:
    """``rows``: PID, PPID, caught and blocked; the init of the container is 9."""
    assert handles(rows, 9, signal.SIGHUP) is expected
