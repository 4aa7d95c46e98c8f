"""Kernel manager: runs one task per kernel and carries out what ``reconcile`` decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from moorage.agent.devices.usage.sampler import RunningKernel
from moorage.agent.execution.commands import LiveKernel
from moorage.agent.kernel import reconcile as policy
from moorage.agent.kernel.checkpoint import KernelRecord, validate_kernel_id
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.kernel_ids import is_usable, orphan_observation
from moorage.agent.kernel.outcome import KernelOutcome
from moorage.agent.kernel.removed import RemovedKernels
from moorage.agent.kernel.report_timing import HOUSEKEEPING, IMMEDIATE, UNHURRIED, OnChange
from moorage.agent.kernel.start_trace import with_log_fields
from moorage.agent.kernel.task import NEVER_STARTED, KernelTask
from moorage.agent.runtimes import Handle, Runtime, RuntimeFailed
from moorage.agent.runtimes.ranged_logs import RangedLogs
from moorage.agent.state.log_times import LogRange
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.messages import LogPiece, LogRequest, Observation, Orders, OrdersDelta
from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState

if TYPE_CHECKING:
    from moorage.agent.kernel.readiness import ReadinessCheck
log = structlog.get_logger("moorage.agent.kernel.manager")
# How long the shutdown waits for the generation of the orders to be written.
_LAST_SAVE_S = 2.0
_SHUTDOWN = "its agent was shut down with its kernels"


class KernelManager:
    """The kernels of an agent. ``on_change`` is called in the event loop whenever there is
    something new to report.

    ``applied_generation``: the generation of the orders in force, 0 until the first orders since
    the start. ``newest_generation``: the newest generation ever applied, across restarts.
    ``listed``: the runtimes that have listed all their kernels since the start. Other runtimes may
    have kernels that are neither in the checkpoint nor in ``observations``.
    """

    def __init__(self, context: AgentContext, *, on_change: OnChange) -> None:
        self._context = context
        self._on_change = on_change
        self.applied_generation = 0
        self.newest_generation = 0
        self._saved_generation = 0
        self.draining = False
        self._ordered: dict[KernelId, KernelSpec] | None = None
        self._kernels: dict[KernelId, KernelTask] = {}
        self._runs: dict[KernelId, SupervisedTask] = {}

        # Kernels that a runtime has found but the checkpoint does not contain, and those being
        # destroyed.
        self._orphans: dict[KernelId, tuple[Runtime, Handle]] = {}
        self._destroying: dict[KernelId, asyncio.Task[None]] = {}
        self._saving: SupervisedTask | None = None
        self.listed: frozenset[str] = frozenset()
        self._scheduled_reconcile: asyncio.Handle | None = None

        # Kernels that may have changed since the last reconciliation, and since the last report, in
        # order.
        self._unreconciled: dict[KernelId, None] = {}
        self._unreported: dict[KernelId, None] = {}
        self._active: dict[KernelId, RunningKernel] = {}
        self._kernel_changed = asyncio.Event()
        self._unhealthy: dict[KernelId, str] = {}
        self._removed = RemovedKernels()

    async def recover(self) -> None:
        """Resume the kernels of an earlier run of this agent, using its checkpoint and the
        runtimes."""
        checkpoint = self._context.checkpoint
        records = await asyncio.to_thread(checkpoint.load)
        self.newest_generation = await asyncio.to_thread(checkpoint.generation)
        self._saved_generation = self.newest_generation
        found, unanswered = await self._find_kernels()
        self._context.ports.reserve(
            port for record in records.values() for port in record.node_ports
        )

        for kernel_id, record in records.items():
            _, handle = found.pop(kernel_id, (None, None))
            maybe_started = record.outcome is None and record.handle is None
            runtime = record.spec.runtime
            has_answered = runtime in self._context.runtimes and runtime not in unanswered
            if maybe_started and (handle or has_answered):
                record = _resolve_intent(record, handle)

            self._start_task(record, maybe_started=maybe_started)

        self._orphans = found
        if records or found:
            log.info(
                "recovered kernels of an earlier run",
                in_checkpoint=len(records),
                orphans=len(found),
            )

    async def scan(self) -> None:
        """Find kernels that are not in the checkpoint, and prune the logs of removed kernels. This
        is expensive, because it reads every process on the node."""
        found, unanswered = await self._find_kernels()
        found |= {k: v for k, v in self._orphans.items() if v[0].name in unanswered}
        orphans = {
            k: v for k, v in found.items() if k not in self._kernels and k not in self._destroying
        }
        if orphans:
            log.warning("found kernels that are not in the checkpoint", kernels=sorted(orphans))

        self._unreported |= dict.fromkeys((*self._orphans, *orphans))
        self._orphans = orphans
        self._reconcile()
        self._on_change(HOUSEKEEPING)
        await asyncio.to_thread(self._context.logs.prune, set(self._kernels))

    def apply_orders(self, orders: Orders | OrdersDelta) -> bool:
        """Apply these orders, or changes to those in force. Returns False if ``reconcile.accepts``
        refuses them.

        On return, every ordered kernel is in ``observations``, so a report of this generation is
        complete.
        """
        if not policy.accepts(self.newest_generation, self.applied_generation, orders):
            return False

        self.applied_generation = orders.generation
        self.newest_generation = self.applied_generation
        changed: list[KernelId] | None = None
        if isinstance(orders, Orders):
            self._ordered = {spec.kernel_id: spec for spec in orders.kernels if is_usable(spec)}
        else:
            assert self._ordered is not None
            for kernel_id in orders.withdrawn:
                self._ordered.pop(kernel_id, None)

            self._ordered |= {spec.kernel_id: spec for spec in orders.added if is_usable(spec)}
            changed = [*orders.withdrawn, *(spec.kernel_id for spec in orders.added)]

        if self._saved_generation != self.newest_generation and (
            self._saving is None or self._saving.done
        ):
            self._saving = SupervisedTask(
                "kernels.save-generation", self._save_generation, finite=True
            )

        self._reconcile(changed)
        self._on_change(HOUSEKEEPING)
        return True

    def observations(self) -> tuple[Observation, ...]:
        """Every kernel on this node, and recently removed ones. Orphans are included, because an
        omitted kernel would be considered GONE and its devices free."""
        every = (*self._kernels, *self._orphans, *self._destroying)
        found = {k: seen for k in every if (seen := self._observation(k)) is not None}
        removed = self._removed.recent(self._context.clock.monotonic())
        self._unreported |= dict.fromkeys(removed)  # the next report shows that they do not exist
        return tuple((removed | found).values())

    def take_changes(self) -> tuple[tuple[Observation, ...], frozenset[KernelId]]:
        """The kernels that may have changed since the last call, and those that no longer exist."""
        changed = self._unreported
        self._unreported = {}
        found = {k: seen for k in changed if (seen := self._observation(k)) is not None}
        return tuple(found.values()), frozenset(changed.keys() - found.keys())

    def _observation(self, kernel_id: KernelId) -> Observation | None:
        if (kernel := self._kernels.get(kernel_id)) is not None:
            seen = kernel.observation()
            problem = self._unhealthy.get(kernel_id)
            problem = "" if seen.unhealthy else problem
            return (
                replace(seen, unhealthy=problem) if problem and seen.state in policy.ALIVE else seen
            )
        is_orphan = kernel_id in self._orphans or kernel_id in self._destroying
        return orphan_observation(kernel_id) if is_orphan else None

    def serving(self) -> Mapping[KernelId, Callable[[], ReadinessCheck | None]]:
        """The ready kernels that answer requests, each with its check."""
        return {
            k: task.readiness_check
            for k, task in self._kernels.items()
            if task.state is ObservedState.RUNNING and task.record.spec.answers_requests
        }

    def is_unreachable(self, kernel_id: KernelId) -> bool:
        """Whether the kernel's health currently cannot be checked."""
        return kernel_id in self._kernels and self._kernels[kernel_id].is_unreachable

    def set_health(self, kernel_id: KernelId, problem: str) -> None:
        """Set the health. ``problem``: why the engine is unhealthy; empty if it is healthy."""
        log.warning("health changed", kernel=kernel_id, problem=problem or "none")
        self._unhealthy[kernel_id] = problem
        self._unreported[kernel_id] = None
        self._on_change(IMMEDIATE)

    def active_kernels(self) -> Mapping[KernelId, RunningKernel]:
        """A live view of the kernels that have been started and have not ended."""
        return self._active

    def states(self) -> dict[KernelId, tuple[str, ObservedState]]:
        """The session name and state of each kernel in the checkpoint."""
        return {
            k: (kernel.record.spec.session_name, kernel.state)
            for k, kernel in self._kernels.items()
        }

    def sessions(self) -> frozenset[SessionId]:
        """Sessions with a kernel on this node, including ended kernels that are still reported."""
        return frozenset(kernel.record.spec.session_id for kernel in self._kernels.values())

    def open_log(self, request: LogRequest) -> AsyncGenerator[bytes | LogPiece, None]:
        """Open a kernel's log. A runtime that does not know the byte numbers yields data without
        them. Raises ``NotFound`` if neither the kernel nor its log exists."""
        kernel_id = request.kernel_id
        kernel = self._kernels.get(request.kernel_id)
        wanted = LogRange(
            request.tail_lines,
            request.follow,
            timestamps=request.timestamps,
            since_ms=request.since_ms,
            offset=request.offset,
        )
        if kernel is not None and kernel.record.handle is not None:
            runtime = self._context.runtimes.get(kernel.record.spec.runtime)
            ranged: object = runtime
            if isinstance(ranged, RangedLogs):
                return ranged.log_range(kernel.record.handle, wanted)
            if runtime is not None and not wanted.needs_times:
                return runtime.logs(kernel.record.handle, request.tail_lines, request.follow)

            if runtime is not None and not runtime.capabilities.node_processes:
                raise NotFound(
                    f"runtime {runtime.name} does not record the times of logs",
                    next_step="leave out --timestamps and --since",
                )

        if kernel is None:
            try:
                validate_kernel_id(kernel_id)
            except InvalidInput as error:
                raise NotFound(str(error)) from None

            if not self._context.logs.exists(kernel_id):
                raise NotFound(
                    f"this agent has no log of kernel {kernel_id}",
                    next_step="it may have been pruned",
                )

        return self._context.logs.read_range(
            kernel_id, wanted, lambda: kernel is not None and kernel.state not in policy.ENDED
        )

    def running(self, kernel_id: KernelId) -> LiveKernel:
        """A running kernel, where commands can run. Raises ``NotFound`` and ``Conflict``."""
        kernel = self._kernels.get(kernel_id)
        if kernel is None:
            raise NotFound(f"this agent has no kernel {kernel_id}")

        spec = kernel.record.spec
        handle = kernel.record.handle
        runtime = self._context.runtimes.get(spec.runtime)
        if handle is None or runtime is None or not runtime.capabilities.is_open(kernel.state):
            raise Conflict(f"the kernel is not running: it is {kernel.state}")

        async def is_ending() -> bool:
            if kernel.state in (ObservedState.STOPPING, *policy.ENDED):
                return True
            return (await runtime.observe(handle)).state in policy.ENDED

        contained = runtime.capabilities.contained
        folder = self._context.workspaces.path(spec, contained)
        if folder is None and not contained:
            folder = self._context.work_dir(spec)

        return LiveKernel(runtime, handle, folder, is_ending)

    def refuse_new(self) -> None:
        """Stop starting kernels."""
        self.draining = True

    async def drain(self, reserve_s: float = 10.0) -> None:
        """Terminate all kernels gracefully, and start no more. Returns when all have ended, or
        after the longest grace period plus ``reserve_s`` seconds."""
        self.refuse_new()
        for kernel in self._kernels.values():
            kernel.terminate(Reason.AGENT_SHUTDOWN, _SHUTDOWN)

        grace_s = max((kernel.record.spec.stop_s for kernel in self._kernels.values()), default=0)
        try:
            async with asyncio.timeout(grace_s + reserve_s):
                while self.alive():
                    self._kernel_changed.clear()
                    await self._kernel_changed.wait()
        except TimeoutError:
            log.error("kernels have not ended in time and are left running", kernels=self.alive())

    async def close(self) -> None:
        """Cancel all tasks. Kernels keep running."""
        if self._scheduled_reconcile is not None:
            self._scheduled_reconcile.cancel()

        await asyncio.gather(*(run.close() for run in self._runs.values()))
        await cancel_and_wait(*self._destroying.values())
        if self._saving is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SAVE_S):
                    await self._saving.wait()

            await self._saving.close()

    def alive(self) -> list[KernelId]:
        """Kernels that are not known to have ended."""
        return [k for k, kernel in self._kernels.items() if kernel.state not in policy.ENDED]

    async def _find_kernels(self) -> tuple[dict[KernelId, tuple[Runtime, Handle]], set[str]]:
        """All kernels found by the runtimes, and the names of the runtimes that did not answer."""
        found: dict[KernelId, tuple[Runtime, Handle]] = {}
        unanswered = set()
        for name, runtime in self._context.runtimes.items():
            try:
                for kernel_id, handle in (await runtime.find()).items():
                    found[kernel_id] = runtime, handle
            except RuntimeFailed as error:
                log.info("a runtime cannot list its kernels", runtime=name, why=error.message)
                unanswered.add(name)

        self.listed |= self._context.runtimes.keys() - unanswered
        return found, unanswered

    async def _save_generation(self) -> None:
        while self._saved_generation != self.newest_generation:
            newest = self.newest_generation
            await asyncio.to_thread(self._context.checkpoint.write_generation, newest)
            self._saved_generation = newest

    # Reconciliation.

    def _reconcile_changed(self) -> None:
        self._scheduled_reconcile = None
        changed = self._unreconciled
        self._unreconciled = {}
        self._reconcile(changed)

    def _reconcile(self, among: Collection[KernelId] | None = None) -> None:
        """Reconcile these kernels. None means all of them."""
        if among is None:
            among = dict.fromkeys((*self._kernels, *self._orphans, *(self._ordered or ())))

        known = {k: kernel for k in among if (kernel := self._kernels.get(k)) is not None}
        checkpoint = {kernel_id: kernel.record.spec for kernel_id, kernel in known.items()}
        observed = {kernel_id: kernel.state for kernel_id, kernel in known.items()}
        observed |= {k: ObservedState.UNKNOWN for k in among if k in self._orphans}
        unlisted = self._context.runtimes.keys() - self.listed
        for action in policy.reconcile(
            self._ordered, checkpoint, observed=observed, unlisted=unlisted, among=among
        ):
            self._execute(action)

    def _execute(self, action: policy.Action) -> None:
        match action:
            case policy.Create(spec):
                self._create(spec)
            case policy.Adopt(spec):
                self._adopt(spec)
            case policy.Stop(kernel_id):
                self._kernels[kernel_id].stop()
            case policy.Remove(kernel_id):
                self._kernels[kernel_id].remove()
            case policy.ReloadProgram(kernel_id, generation):
                self._kernels[kernel_id].reloading.want(generation)
            case policy.Suspend(kernel_id, suspended):
                self._kernels[kernel_id].suspend(suspended)
            case policy.Destroy(kernel_id):
                log.warning("destroying a kernel that no manager ordered", kernel=kernel_id)
                work = self._destroy(kernel_id, *self._orphans.pop(kernel_id))
                self._destroying[kernel_id] = spawn(f"destroy.{kernel_id}", work)

    def _create(self, spec: KernelSpec) -> None:
        record = self._new_record(spec)
        if self.draining:
            outcome = KernelOutcome(ObservedState.EXITED, None, Reason.AGENT_SHUTDOWN, _SHUTDOWN)
            record = replace(record, outcome=outcome)
        self._start_task(record)

    def _adopt(self, spec: KernelSpec) -> None:
        _, handle = self._orphans.pop(spec.kernel_id)
        log.warning("adopting a kernel that the checkpoint had lost", kernel=spec.kernel_id)
        apps = self._context.ports.reclaimable(handle.apps)
        record = replace(self._new_record(spec), handle=handle, port=handle.port, apps=apps)
        self._context.ports.reserve(record.node_ports)
        self._start_task(record)

    async def _destroy(self, kernel_id: KernelId, runtime: Runtime, handle: Handle) -> None:
        destroyed = False
        try:
            await runtime.destroy(handle)
            destroyed = True
        except (OSError, RuntimeFailed) as error:
            log.error(
                "cannot destroy the kernel, retrying after the next scan",
                kernel=kernel_id,
                error=str(error),
            )
        finally:
            if not destroyed:
                # The kernel still exists, so it is reported until a scan no longer finds it.
                self._orphans[kernel_id] = runtime, handle

            del self._destroying[kernel_id]
            self._unreported[kernel_id] = None
            self._on_change(IMMEDIATE)

    def _new_record(self, spec: KernelSpec) -> KernelRecord:
        return KernelRecord(spec, created_at=self._context.clock.now().timestamp())

    def _start_task(self, record: KernelRecord, *, maybe_started: bool = False) -> None:
        kernel = KernelTask(
            record,
            self._context,
            on_change=partial(self._on_kernel_change, record.kernel_id),
            on_removed=self._on_kernel_removed,
            maybe_started=maybe_started,
        )
        self._kernels[record.kernel_id] = kernel
        self._note(record.kernel_id)

        run = with_log_fields(record.spec, kernel.run)
        self._runs[record.kernel_id] = SupervisedTask(
            "kernel", run, key=record.kernel_id, finite=True
        )

    def _on_kernel_change(self, kernel_id: KernelId, within_s: float) -> None:
        self._note(kernel_id)
        if within_s == UNHURRIED:
            return

        self._on_change(within_s)
        self._kernel_changed.set()
        self._unreconciled[kernel_id] = None
        if self._scheduled_reconcile is None:
            self._scheduled_reconcile = asyncio.get_running_loop().call_soon(
                self._reconcile_changed
            )

    def _on_kernel_removed(self, kernel_id: KernelId) -> None:
        self._removed.add(self._kernels[kernel_id].observation(), self._context.clock.monotonic())
        del self._kernels[kernel_id], self._runs[kernel_id]
        self._unhealthy.pop(kernel_id, None)
        self._note(kernel_id)
        self._on_change(HOUSEKEEPING)

    def _note(self, kernel_id: KernelId) -> None:
        """Note that the kernel may have changed."""
        self._unreported[kernel_id] = None
        kernel = self._kernels.get(kernel_id)
        record = kernel.record if kernel is not None and kernel.state not in policy.ENDED else None
        if record is None or record.handle is None:
            self._active.pop(kernel_id, None)
        elif kernel_id not in self._active or self._active[kernel_id].handle is not record.handle:
            devices = {d.device_id: d.amount for d in record.spec.devices}
            self._active[kernel_id] = RunningKernel(
                record.spec.runtime, record.handle, devices, record.spec
            )


def _resolve_intent(record: KernelRecord, found: Handle | None) -> KernelRecord:
    """Resolve a start during which the agent died. If the kernel was started, continue with it.
    Otherwise, it has ended and is not started again."""
    if found is not None:
        return replace(record, handle=found)
    return replace(
        record, outcome=KernelOutcome(ObservedState.GONE, None, Reason.KERNEL_GONE, NEVER_STARTED)
    )
