"""All kernels of this agent: carries out what ``reconcile`` decides, one task per kernel."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import replace

import structlog

from moorage.agent.devices.usage.sampler import RunningKernel
from moorage.agent.execution.commands import Opened, command
from moorage.agent.kernel import reconcile as policy
from moorage.agent.kernel.context import Surroundings
from moorage.agent.kernel.create import NEVER_STARTED
from moorage.agent.kernel.outcome import Outcome
from moorage.agent.kernel.task import Life
from moorage.agent.link.report_timing import AT_ONCE, HOUSEKEEPING, Changed
from moorage.agent.runtimes import Handle, Runtime, RuntimeFailed
from moorage.agent.state.checkpoint import Entry, check_id
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.messages import ExecRequest, LogRequest, Observation, Orders
from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.kernel.manager")
# A process of a stranger may carry anything in its environment; no manager gave such an id.
_KERNEL_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SHUTDOWN = "its agent was shut down with its kernels"


class Keeper:
    """``changed`` is called, in the event loop, whenever there is something new to report.

    ``taken``: the generation of the orders that it acts upon, 0 before the first since the start.
    """

    def __init__(self, around: Surroundings, *, changed: Changed) -> None:
        self._around, self._changed = around, changed
        self.taken = self._newest = self._saved = 0
        self.draining = False
        self._orders: Orders | None = None
        self._lives: dict[KernelId, Life] = {}
        self._tasks: dict[KernelId, asyncio.Task[None]] = {}
        self._strays: dict[KernelId, tuple[Runtime, Handle]] = {}
        self._clearing: dict[KernelId, asyncio.Task[None]] = {}
        self._saving: asyncio.Task[None] | None = None
        self._soon: asyncio.Handle | None = None
        self._moved = asyncio.Event()

    async def recover(self) -> None:
        """Take up what an earlier run of this agent left: its ledger, and what the runtimes find."""
        ledger = self._around.ledger
        entries = await asyncio.to_thread(ledger.load)
        self._newest = self._saved = await asyncio.to_thread(ledger.generation)
        found, away = await self._find()
        self._around.ports.hold(port for entry in entries.values() for port in entry.held)
        for kernel_id, entry in entries.items():
            there = found.pop(kernel_id, None)
            begun = entry.outcome is None and entry.handle is None
            known = entry.spec.runtime in self._around.runtimes and entry.spec.runtime not in away
            if begun and (there or known):
                entry = _unfinished(entry, there[1] if there else None)
            self._begin(entry, begun=begun)
        self._strays = found
        if entries or found:
            log.info("kernels from before", remembered=len(entries), only_found=len(found))

    async def look_around(self) -> None:
        """Find kernels that nobody remembers, and bound the logs of those that are no more. Costs a look at
        every process of the node: call it seldom."""
        found, away = await self._find()
        found |= {k: v for k, v in self._strays.items() if v[0].name in away}
        strays = {k: v for k, v in found.items() if k not in self._lives and k not in self._clearing}
        if strays:
            log.warning("found kernels that are not in the ledger", kernels=sorted(strays))
        self._strays = strays
        self._reconcile()
        await asyncio.to_thread(self._around.logs.prune, set(self._lives))

    def take(self, orders: Orders) -> bool:
        """Obey these orders from now on. False: they are older than what was obeyed before, and are refused.

        When it returns, every ordered kernel is in ``observations``: a report with this generation is whole.
        """
        if not policy.accepts(self._newest, orders):
            return False
        self.taken = self._newest = orders.generation
        self._orders = replace(orders, kernels=tuple(spec for spec in orders.kernels if _usable(spec)))
        if self._saved != self._newest and (self._saving is None or self._saving.done()):
            self._saving = spawn("keeper.save", self._save())
        self._reconcile()
        self._changed(HOUSEKEEPING)
        return True

    @property
    def newest(self) -> int:
        """The newest generation that was ever taken, over restarts."""
        return self._newest

    def observations(self) -> tuple[Observation, ...]:
        """Every kernel that this node has. Those that the ledger has lost are there too, and hold their
        devices: left out, they would pass for gone."""
        strays = (_stray(k) for k in (*self._strays, *self._clearing) if _KERNEL_ID.fullmatch(k))
        return (*(life.observation() for life in self._lives.values()), *strays)

    def measured(self) -> dict[KernelId, RunningKernel]:
        """Those that run, or are on their way."""
        return {
            kernel_id: RunningKernel(
                entry.spec.runtime, entry.handle, {d.device_id: d.amount for d in entry.spec.devices}
            )
            for kernel_id, life in self._lives.items()
            if (entry := life.entry).handle is not None and life.state not in policy.ENDED
        }

    def states(self) -> dict[KernelId, tuple[str, ObservedState]]:
        """All that it keeps, each with the name of its session."""
        return {k: (life.entry.spec.session_name, life.state) for k, life in self._lives.items()}

    def logs(self, request: LogRequest) -> AsyncGenerator[bytes, None]:
        """Raises ``NotFound`` when there is no such kernel and no log of it."""
        kernel_id, life = request.kernel_id, self._lives.get(request.kernel_id)
        if life is not None and life.entry.handle is not None:
            runtime = self._around.runtimes.get(life.entry.spec.runtime)
            if runtime is not None:
                return runtime.logs(life.entry.handle, request.tail_lines, request.follow)
        if life is None:
            try:
                check_id(kernel_id)
            except InvalidInput as error:
                raise NotFound(str(error)) from None
            if not self._around.logs.exists(kernel_id):
                raise NotFound(
                    f"this agent has no log of kernel {kernel_id}", next_step="it may have been pruned"
                )
        return self._around.logs.read(
            kernel_id,
            request.tail_lines,
            request.follow,
            lambda: life is not None and life.state not in policy.ENDED,
        )

    async def exec(self, request: ExecRequest) -> Opened:
        """Run a command in a kernel that runs. Raises ``NotFound``, ``Conflict``, and as ``Runtime.exec``."""
        life = self._lives.get(request.kernel_id)
        if life is None:
            raise NotFound(f"this agent has no kernel {request.kernel_id}")
        handle, runtime = life.entry.handle, self._around.runtimes.get(life.entry.spec.runtime)
        if handle is None or runtime is None or life.state is not ObservedState.RUNNING:
            raise Conflict(f"the kernel does not run: it is {life.state}")
        execution = await runtime.exec(handle, command(request))

        async def why_over() -> str:
            ending = life.state in (ObservedState.STOPPING, *policy.ENDED)
            if not ending:
                ending = (await runtime.observe(handle)).state in policy.ENDED
            return "the session has ended, and the command with it" if ending else ""

        return Opened(execution, why_over)

    def sessions(self) -> frozenset[SessionId]:
        """Those that have a kernel here, also one that has ended and is still told of."""
        return frozenset(life.entry.spec.session_id for life in self._lives.values())

    async def drain(self, reserve_s: float = 10.0) -> None:
        """End all kernels, politely first, and start no more. Returns when all have ended, or when the
        longest grace and ``reserve_s`` seconds have passed."""
        self.draining = True
        for life in self._lives.values():
            life.doom(Reason.AGENT_SHUTDOWN, SHUTDOWN)
        grace = max((life.entry.spec.stop_grace_s for life in self._lives.values()), default=0)
        try:
            async with asyncio.timeout(grace + reserve_s):
                while not self._all_ended():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            left = [life.entry.kernel_id for life in self._lives.values() if life.state not in policy.ENDED]
            log.error("kernels are left running", kernels=left)

    async def close(self) -> None:
        """Stop keeping; kernels that run go on running."""
        if self._soon is not None:
            self._soon.cancel()
        await cancel_and_wait(*self._tasks.values(), *self._clearing.values())
        if self._saving is not None:
            await asyncio.wait([self._saving])

    def _all_ended(self) -> bool:
        return all(life.state in policy.ENDED for life in self._lives.values())

    async def _find(self) -> tuple[dict[KernelId, tuple[Runtime, Handle]], set[str]]:
        """What is there, and the names of the runtimes that did not answer."""
        found: dict[KernelId, tuple[Runtime, Handle]] = {}
        away = set()
        for name, runtime in self._around.runtimes.items():
            try:
                for kernel_id, handle in (await runtime.find()).items():
                    found[kernel_id] = runtime, handle
            except RuntimeFailed as error:
                log.info("a runtime cannot say what it has", runtime=name, why=error.message)
                away.add(name)
        return found, away

    async def _save(self) -> None:
        while self._saved != self._newest:
            newest = self._newest
            try:
                await asyncio.to_thread(self._around.ledger.write_generation, newest)
            except OSError as error:
                log.error("cannot write the generation of the orders", error=str(error))
                return
            self._saved = newest

    # Deciding and doing.

    def _reconcile(self) -> None:
        self._soon = None
        ledger = {kernel_id: life.entry.spec for kernel_id, life in self._lives.items()}
        observed = {kernel_id: life.state for kernel_id, life in self._lives.items()}
        observed |= dict.fromkeys(self._strays, ObservedState.UNKNOWN)
        for action in policy.reconcile(self._orders, ledger, observed):
            self._do(action)

    def _do(self, action: policy.Action) -> None:
        match action:
            case policy.Create(spec):
                self._create(spec)
            case policy.Adopt(spec):
                _, handle = self._strays.pop(spec.kernel_id)
                log.warning("adopting a kernel that the ledger had lost", kernel=spec.kernel_id)
                apps = self._around.ports.recognised(handle.apps)
                entry = replace(self._new(spec), handle=handle, port=handle.port, apps=apps)
                self._around.ports.hold(entry.held)
                self._begin(entry)
            case policy.Stop(kernel_id):
                self._lives[kernel_id].withdraw()
            case policy.Forget(kernel_id):
                self._lives[kernel_id].forget()
            case policy.Destroy(kernel_id):
                runtime, handle = self._strays.pop(kernel_id)
                log.warning("destroying a kernel that nobody ordered", kernel=kernel_id)
                self._clearing[kernel_id] = spawn(
                    f"clear.{kernel_id}", self._clear(kernel_id, runtime, handle)
                )

    def _new(self, spec: KernelSpec) -> Entry:
        return Entry(spec, created_at=self._around.clock.now().timestamp())

    def _create(self, spec: KernelSpec) -> None:
        entry = self._new(spec)
        if self.draining:
            entry = replace(
                entry, outcome=Outcome(ObservedState.EXITED, None, Reason.AGENT_SHUTDOWN, SHUTDOWN)
            )
        self._begin(entry)

    def _begin(self, entry: Entry, *, begun: bool = False) -> None:
        life = Life(entry, self._around, changed=self._life_changed, gone=self._life_gone, begun=begun)
        self._lives[entry.kernel_id] = life
        self._tasks[entry.kernel_id] = spawn(f"life.{entry.kernel_id}", life.run())

    async def _clear(self, kernel_id: KernelId, runtime: Runtime, handle: Handle) -> None:
        try:
            await runtime.destroy(handle)
        except (OSError, RuntimeFailed) as error:
            log.error(
                "cannot destroy it; trying again at the next look around", kernel=kernel_id, error=str(error)
            )
            # It is there still, and told of, until it is found gone.
            self._strays[kernel_id] = runtime, handle
        finally:
            del self._clearing[kernel_id]
            self._changed(AT_ONCE)

    def _life_changed(self, within_s: float) -> None:
        self._changed(within_s)
        self._moved.set()
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._reconcile)

    def _life_gone(self, kernel_id: KernelId) -> None:
        del self._lives[kernel_id], self._tasks[kernel_id]
        self._changed(HOUSEKEEPING)


def _unfinished(entry: Entry, found: Handle | None) -> Entry:
    """It was to be started when the agent died: if it was, go on with it; if not, it never is."""
    if found is not None:
        return replace(entry, handle=found)
    return replace(entry, outcome=Outcome(ObservedState.GONE, None, Reason.KERNEL_GONE, NEVER_STARTED))


def _stray(kernel_id: KernelId) -> Observation:
    return Observation(kernel_id, SessionId(""), ObservedState.UNKNOWN)


def _usable(spec: KernelSpec) -> bool:
    try:
        check_id(spec.kernel_id)
    except InvalidInput as error:
        log.error("ignoring an order", error=str(error))
        return False
    return True
