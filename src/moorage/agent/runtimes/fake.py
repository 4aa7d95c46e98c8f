"""Runtime with simulated kernels, for tests, demonstrations and benchmarks.

A kernel's environment sets its behavior: ``FAKE_START_S`` (seconds until it runs; 0),
``FAKE_RUN_S`` (seconds until it exits on its own; default 1 for batch, never for other types),
``FAKE_EXIT_CODE`` (0), ``FAKE_IGNORE_TERM`` (1: it exits only when killed), ``FAKE_SIGNALS`` (the
signals that it handles; HUP) and ``FAKE_LOG`` (its output). Its reported usage is set by
``FAKE_CPU`` (processors; 0), ``FAKE_MEMORY`` and ``FAKE_GPU_MEMORY`` (bytes), ``FAKE_GPU`` (busy
devices), ``FAKE_RX`` and ``FAKE_TX`` (bytes per second). For a site with a queue: ``FAKE_QUEUE_S``
(seconds in the queue; 0) and ``FAKE_WALLTIME_S`` (seconds from then to its end; the walltime in its
order).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from moorage.agent.runtimes.base import (
    Capabilities,
    Counters,
    CreateFailed,
    Handle,
    Isolation,
    Launch,
    OnProgress,
    RuntimeObservation,
    ignore_progress,
)
from moorage.agent.runtimes.execution import (
    NOT_FOUND,
    STDERR,
    STDOUT,
    Command,
    ExecFailed,
    Execution,
)
from moorage.agent.runtimes.signals import SignalRefused, without_handler
from moorage.agent.runtimes.simulated import SIGKILL, KernelScript, SimulatedKernel
from moorage.agent.state.log_times import LogRange
from moorage.agent.state.log_writer import OUTPUT
from moorage.agent.state.logs import LogStore, data_of
from moorage.common.aio.clock import SystemClock
from moorage.common.aio.pipe import Pipe
from moorage.common.link.log_request import LogPiece
from moorage.common.model.ids import KernelId
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.status import ObservedState

_SIGHUP = -1
_MAX_PENDING_OUTPUT = 16


class _Kernel:
    def __init__(self, launch: Launch, script: KernelScript) -> None:
        self._loop = asyncio.get_running_loop()
        self.launch = launch
        self.simulated = SimulatedKernel(script, self._loop.time())
        self.changed = asyncio.Event()
        self.executions: list[FakeExecution] = []
        self.suspended = False
        self._timer: asyncio.TimerHandle | None = None
        self.advance(self._loop.time())

    def suspend(self, suspended: bool) -> None:
        """While it is suspended, it does not advance; what is due happens when it continues."""
        self.suspended = suspended
        self.advance(self._loop.time())

    @property
    def state(self) -> ObservedState:
        return self.simulated.state

    def observation(self) -> RuntimeObservation:
        simulated = self.simulated
        state = self.state
        if state is ObservedState.QUEUED:
            start = _unix(simulated.started_at, self._loop)
            return RuntimeObservation(state, detail="Priority", expected_start=start)
        end = None if simulated.ends_at is None else _unix(simulated.ends_at, self._loop)
        return RuntimeObservation(
            state, simulated.exit_code, ends_at=end, walltime_over=simulated.walltime_over
        )

    def advance(self, now: float) -> None:
        if self.suspended:
            return

        before = self.state
        self.simulated.advance(now)
        if self.state is not before:
            self._notify_change()
        self._set_timer()

    def stop(self, grace_s: float) -> None:
        self.simulated.stop(self._loop.time(), grace_s)
        self.advance(self._loop.time())

    def kill(self) -> None:
        if self.simulated.alive:
            self.simulated.kill(self._loop.time())
            self._notify_change()
            self._set_timer()

    def _notify_change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()
        if not self.simulated.alive:
            for execution in self.executions:
                execution.end(SIGKILL)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # The loop may call a timer slightly early, so the model is advanced to the scheduled time.
        at = self.simulated.next_change
        self._timer = None if at is None else self._loop.call_at(at, self.advance, at)


@dataclass
class FakeNode:
    """The kernels on a node. They outlive an agent: two runtimes over one node represent an agent
    before and after a restart."""

    kernels: dict[KernelId, _Kernel] = field(default_factory=dict)


class FakeRuntime:
    """The fake runtime. ``silence_grace_s``: as declared by a runtime whose kernels outlive their
    agent. ``max_jobs``: the capacity of the site that it simulates, or None if it simulates a
    node."""

    name = "fake"

    def __init__(
        self,
        logs: LogStore,
        node: FakeNode | None = None,
        *,
        silence_grace_s: float = 0.0,
        max_jobs: int | None = None,
    ) -> None:
        self._logs = logs
        self._node = node or FakeNode()
        self.silence_grace_s = silence_grace_s
        self.capabilities = Capabilities(
            simulated=True, max_jobs=max_jobs, signals=True, suspension=max_jobs is None
        )

    async def probe(self) -> Isolation:
        return Isolation()

    async def prepare(
        self, launch: Launch, on_progress: OnProgress = ignore_progress
    ) -> tuple[ServicePort, ...]:
        return ()

    async def create(self, launch: Launch) -> Handle:
        handle = Handle(self.name, {"kernel_id": launch.kernel_id})
        if launch.kernel_id in self._node.kernels:
            return handle

        script = _script_from(launch.env, launch.hpc.walltime_s if launch.hpc else 0)
        _counters(launch.env, 0.0)  # fail early if a number is malformed
        if text := launch.env.get("FAKE_LOG"):
            folder = self._logs.folder(launch.kernel_id)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / f"{OUTPUT}{0:016d}").write_text(text)

        self._node.kernels[launch.kernel_id] = _Kernel(launch, script)
        return handle

    async def observe(self, handle: Handle) -> RuntimeObservation:
        kernel = self._kernel(handle)
        if kernel is None:
            return RuntimeObservation(ObservedState.GONE)
        return kernel.observation()

    async def wait(self, handle: Handle, last_state: ObservedState) -> None:
        kernel = self._kernel(handle)
        if kernel is not None and kernel.state is last_state is not ObservedState.EXITED:
            await kernel.changed.wait()

    async def stop(self, handle: Handle, grace_s: float) -> None:
        kernel = self._kernel(handle)
        if kernel is not None:
            kernel.stop(grace_s)

    async def destroy(self, handle: Handle) -> None:
        kernel = self._node.kernels.pop(KernelId(handle.state["kernel_id"]), None)
        if kernel is not None:
            kernel.kill()

    async def find(self) -> dict[KernelId, Handle]:
        return {
            kernel_id: Handle(
                self.name,
                {"kernel_id": kernel_id},
                port=kernel.launch.port,
                apps=kernel.launch.apps,
            )
            for kernel_id, kernel in self._node.kernels.items()
        }

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        now = asyncio.get_running_loop().time()
        kernels = self._node.kernels
        return {
            kernel_id: _counters(kernel.launch.env, now - kernel.simulated.created_at)
            for kernel_id in handles
            if (kernel := kernels.get(kernel_id)) is not None
        }

    def logs(
        self, handle: Handle, tail_lines: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        return data_of(self.log_range(handle, LogRange(tail_lines, follow)))

    def log_range(self, handle: Handle, wanted: LogRange) -> AsyncGenerator[LogPiece, None]:
        kernel_id = KernelId(handle.state["kernel_id"])
        return self._logs.read_range(kernel_id, wanted, lambda: self._alive(handle))

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        return self._logs.tail(KernelId(handle.state["kernel_id"]), max_bytes)

    async def exec(self, handle: Handle, command: Command) -> Execution:
        kernel = self._kernel(handle)
        if kernel is None or kernel.state is not ObservedState.RUNNING:
            raise ExecFailed("no command can be run in the kernel: it is not running")
        execution = FakeExecution(command, kernel.launch.env)
        kernel.executions.append(execution)
        return execution

    async def suspend(self, handle: Handle) -> None:
        self._suspend(handle, True)

    async def resume(self, handle: Handle) -> None:
        self._suspend(handle, False)

    def _suspend(self, handle: Handle, suspended: bool) -> None:
        if (kernel := self._kernel(handle)) is not None:
            kernel.suspend(suspended)

    async def signal(self, handle: Handle, name: str) -> None:
        kernel = self._kernel(handle)
        if kernel is None or kernel.state is not ObservedState.RUNNING:
            raise SignalRefused("the kernel is not running")
        if name not in kernel.launch.env.get("FAKE_SIGNALS", "HUP").split(","):
            raise without_handler(name)

    def _kernel(self, handle: Handle) -> _Kernel | None:
        return self._node.kernels.get(KernelId(handle.state["kernel_id"]))

    def _alive(self, handle: Handle) -> bool:
        kernel = self._kernel(handle)
        return kernel is not None and kernel.simulated.alive


class FakeExecution:
    """A command in a fake kernel. It supports ``echo TEXT``, ``warn TEXT`` (on stderr), ``exit
    CODE``, ``cat`` (copies its input), ``env NAME``, ``size`` (prints the terminal size at the
    start and at each change) and ``sleep`` (until it is stopped)."""

    def __init__(self, command: Command, env: Mapping[str, str]) -> None:
        self._command = command
        self._env = {**env, **command.env}
        self._output: Pipe[tuple[int, bytes]] = Pipe(_MAX_PENDING_OUTPUT)
        self._code: int | None = None
        self._initial_output: list[tuple[int, bytes]] = []
        self._start()

    def _start(self) -> None:
        program, *rest = self._command.argv
        text = " ".join(rest)
        if program in ("echo", "warn"):
            self._initial_output.append(
                (STDOUT if program == "echo" else STDERR, f"{text}\n".encode())
            )
            self.end(0)
        elif program == "env":
            self._initial_output.append((STDOUT, f"{self._env.get(text, '')}\n".encode()))
            self.end(0)
        elif program == "exit":
            self.end(int(text))
        elif program == "size":
            size = f"{self._command.rows} {self._command.cols}\n"
            self._initial_output.append((STDOUT, size.encode()))
        elif program == "cat" and not self._command.stdin:
            self.end(0)
        elif program not in ("cat", "sleep"):
            error = f"moorage: cannot run {program!r} in the session: not found\n"
            self._initial_output.append((STDERR, error.encode()))
            self.end(NOT_FOUND)

    def end(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self._output.close()

    async def read(self) -> tuple[int, bytes] | None:
        if self._initial_output:
            channel, data = self._initial_output.pop(0)
            return (STDOUT if self._command.tty else channel), data
        return await self._output.get()

    async def write(self, data: bytes) -> None:
        if self._command.argv[0] == "cat":
            await self._output.put((STDOUT, data))

    async def end_input(self) -> None:
        if self._command.argv[0] == "cat":
            self.end(0)

    async def resize(self, rows: int, cols: int) -> None:
        if self._command.argv[0] == "size" and self._command.tty:
            await self._output.put((STDOUT, f"{rows} {cols}\n".encode()))

    async def wait(self) -> int:
        while self._code is None:
            await self._output.get()
        return self._code

    def disconnect(self) -> None:
        self.end(_SIGHUP)


def _unix(at: float, loop: asyncio.AbstractEventLoop) -> float:
    return round(SystemClock().now().timestamp() + at - loop.time())


def _script_from(env: dict[str, str], walltime_s: float = 0) -> KernelScript:
    try:
        run_s = None
        if "FAKE_RUN_S" in env:
            run_s = float(env["FAKE_RUN_S"])
        elif env.get("MOORAGE_SESSION_TYPE") == "batch":
            run_s = 1.0

        return KernelScript(
            start_s=float(env.get("FAKE_START_S", "0")),
            run_s=run_s,
            exit_code=int(env.get("FAKE_EXIT_CODE", "0")),
            stop_s=None if env.get("FAKE_IGNORE_TERM") == "1" else 0.0,
            queue_s=float(env.get("FAKE_QUEUE_S", "0")),
            walltime_s=float(env["FAKE_WALLTIME_S"])
            if "FAKE_WALLTIME_S" in env
            else walltime_s or None,
        )
    except ValueError as error:
        raise CreateFailed(f"a FAKE_* variable is not a number: {error}") from None


def _counters(env: dict[str, str], age_s: float) -> Counters:
    def amount(name: str, scale: float = 1.0) -> int | None:
        return int(float(env[name]) * scale) if name in env else None

    try:
        return Counters(
            cpu_us=amount("FAKE_CPU", 1e6 * age_s) or 0,
            memory=amount("FAKE_MEMORY") or 0,
            rx=amount("FAKE_RX", age_s),
            tx=amount("FAKE_TX", age_s),
            gpu=amount("FAKE_GPU", 1000),
            gpu_memory=amount("FAKE_GPU_MEMORY"),
        )
    except ValueError as error:
        raise CreateFailed(f"a FAKE_* variable is not a number: {error}") from None
