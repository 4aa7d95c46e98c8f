"""Kernels that are only pretended, for simulations, benchmarks and the conformance suite's second opinion.

A kernel's environment scripts it: ``FAKE_START_S`` (seconds until it runs, 0), ``FAKE_RUN_S`` (seconds until
it ends by itself; default 1 for batch, never for others), ``FAKE_EXIT_CODE`` (0), ``FAKE_IGNORE_TERM`` (1:
ends only when killed) and ``FAKE_LOG`` (what it writes). Of what it is said to use: ``FAKE_CPU`` (processors,
0), ``FAKE_MEMORY``, ``FAKE_GPU_MEMORY`` (bytes), ``FAKE_GPU`` (busy devices), ``FAKE_RX``, ``FAKE_TX`` (bytes
a second).
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
    Launch,
    OnProgress,
    RuntimeObservation,
    ignore_progress,
)
from moorage.agent.runtimes.execution import Command, ExecFailed, Execution
from moorage.agent.runtimes.fake_execution import FakeExecution
from moorage.agent.state.logs import LogStore
from moorage.common.model.ids import KernelId
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.status import ObservedState

_SIGTERM, _SIGKILL = -15, -9


@dataclass
class _Kernel:
    launch: Launch
    state: ObservedState = ObservedState.CREATING
    exit_code: int | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    begun: float = 0.0
    executions: list[FakeExecution] = field(default_factory=list)

    def move(self, state: ObservedState, exit_code: int | None = None) -> None:
        if self.state is ObservedState.EXITED:
            return
        self.state, self.exit_code = state, exit_code
        self.changed.set()
        self.changed = asyncio.Event()
        if state is ObservedState.EXITED:
            for timer in self.timers:
                timer.cancel()
            for execution in self.executions:
                execution.end(_SIGKILL)


@dataclass
class FakeWorld:
    """What outlives an agent: two runtimes over one world are one agent before and after a restart."""

    kernels: dict[KernelId, _Kernel] = field(default_factory=dict)


class FakeRuntime:
    name = "fake"

    def __init__(self, logs: LogStore, world: FakeWorld | None = None) -> None:
        self._logs, self.world = logs, world or FakeWorld()

    async def probe(self) -> Capabilities:
        return Capabilities(runs_engines=False)

    async def prepare(self, launch: Launch, tell: OnProgress = ignore_progress) -> tuple[ServicePort, ...]:
        return ()

    async def create(self, launch: Launch) -> Handle:
        handle = Handle(self.name, {"kernel_id": launch.kernel_id})
        if launch.kernel_id in self.world.kernels:
            return handle
        start_s, run_s, code = _script(launch.env)
        _counters(launch.env, 0.0)
        kernel = self.world.kernels[launch.kernel_id] = _Kernel(launch)
        if text := launch.env.get("FAKE_LOG"):
            folder = self._logs.folder(launch.kernel_id)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / "kernel.log").write_text(text)
        loop = asyncio.get_running_loop()
        kernel.begun = loop.time()
        if start_s > 0:
            kernel.timers.append(loop.call_later(start_s, kernel.move, ObservedState.RUNNING))
        else:
            kernel.move(ObservedState.RUNNING)
        if run_s is not None:
            kernel.timers.append(loop.call_later(start_s + run_s, kernel.move, ObservedState.EXITED, code))
        return handle

    async def observe(self, handle: Handle) -> RuntimeObservation:
        kernel = self._kernel(handle)
        return (
            RuntimeObservation(kernel.state, kernel.exit_code)
            if kernel
            else RuntimeObservation(ObservedState.GONE)
        )

    async def wait(self, handle: Handle, seen: ObservedState) -> None:
        kernel = self._kernel(handle)
        if kernel is not None and kernel.state is seen is not ObservedState.EXITED:
            await kernel.changed.wait()

    async def stop(self, handle: Handle, grace_s: float) -> None:
        kernel = self._kernel(handle)
        if kernel is None:
            return
        if kernel.launch.env.get("FAKE_IGNORE_TERM") == "1":
            later = asyncio.get_running_loop().call_later(
                grace_s, kernel.move, ObservedState.EXITED, _SIGKILL
            )
            kernel.timers.append(later)
        else:
            kernel.move(ObservedState.EXITED, _SIGTERM)

    async def destroy(self, handle: Handle) -> None:
        kernel = self.world.kernels.pop(KernelId(handle.state["kernel_id"]), None)
        if kernel is not None:
            kernel.move(ObservedState.EXITED, _SIGKILL)

    async def find(self) -> dict[KernelId, Handle]:
        return {
            kernel_id: Handle(
                self.name, {"kernel_id": kernel_id}, port=kernel.launch.port, apps=kernel.launch.apps
            )
            for kernel_id, kernel in self.world.kernels.items()
        }

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        now, there = asyncio.get_running_loop().time(), self.world.kernels
        return {k: _counters(there[k].launch.env, now - there[k].begun) for k in handles if k in there}

    def logs(self, handle: Handle, tail_lines: int = 0, follow: bool = False) -> AsyncGenerator[bytes, None]:
        return self._logs.read(
            KernelId(handle.state["kernel_id"]), tail_lines, follow, lambda: self._lives(handle)
        )

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        return self._logs.tail(KernelId(handle.state["kernel_id"]), max_bytes)

    async def exec(self, handle: Handle, command: Command) -> Execution:
        kernel = self._kernel(handle)
        if kernel is None or kernel.state is not ObservedState.RUNNING:
            raise ExecFailed("no command can be run in it: it does not run")
        execution = FakeExecution(command, kernel.launch.env)
        kernel.executions.append(execution)
        return execution

    def _kernel(self, handle: Handle) -> _Kernel | None:
        return self.world.kernels.get(KernelId(handle.state["kernel_id"]))

    def _lives(self, handle: Handle) -> bool:
        kernel = self._kernel(handle)
        return kernel is not None and kernel.state is not ObservedState.EXITED


def _script(env: dict[str, str]) -> tuple[float, float | None, int]:
    run_s = None
    try:
        if "FAKE_RUN_S" in env:
            run_s = float(env["FAKE_RUN_S"])
        elif env.get("MOORAGE_SESSION_TYPE") == "batch":
            run_s = 1.0
        return float(env.get("FAKE_START_S", "0")), run_s, int(env.get("FAKE_EXIT_CODE", "0"))
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
