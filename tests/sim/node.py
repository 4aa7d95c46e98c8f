"""A node in the deterministic simulation: an agent's real ``reconcile`` over simulated kernels, in
virtual time.

The agent follows the rules of ``agent/kernel``: it writes the checkpoint before it starts anything,
never restarts a kernel that is in the checkpoint, and keeps reporting that a kernel has ended until
its order is withdrawn. Unlike the fleet simulator's agent, it is killed between these steps, and
sees its kernels only when it is stepped.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from moorage.agent.kernel import reconcile as policy
from moorage.agent.kernel.leases import KernelLeases
from moorage.agent.kernel.outcome import KernelOutcome, TerminationCause, determine_outcome
from moorage.agent.runtimes.base import KernelLease
from moorage.agent.runtimes.simulated import KernelScript, SimulatedKernel
from moorage.common.aio.clock import ManualClock
from moorage.common.link.messages import (
    AgentInfo,
    Observation,
    Orders,
    OrdersDelta,
    Report,
    RuntimeState,
    SlotOffer,
)
from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState

GIB = 1024**3
KILL_MARGIN_S = 3.0


class Violation(AssertionError):
    """A broken invariant."""


@dataclass
class NodeKernel:
    """A kernel that the node runs, with or without an agent."""

    spec: KernelSpec
    simulated: SimulatedKernel
    lease: KernelLease | None = None
    lease_expired: bool = False

    @property
    def alive(self) -> bool:
        return self.simulated.alive

    def advance(self, now: float) -> None:
        """Acts like its supervisor, which reads the newest contact once the lease has expired by
        the last contact that it knew."""
        while self.lease is not None and self.alive and not self.lease_expired:
            ends_at = self.lease.contact + self.lease.seconds
            if ends_at > now:
                break

            self.simulated.advance(ends_at)
            contact = _contact(Path(self.lease.file), self.lease.contact)
            if contact == self.lease.contact and self.alive:
                self.lease_expired = True
                self.simulated.stop(ends_at, self.spec.stop_grace_s)

            self.lease = replace(self.lease, contact=contact)

        self.simulated.advance(now)


def _contact(file: Path, default: float) -> float:
    try:
        return float(file.read_text())
    except FileNotFoundError:
        return default


class NodeClock(ManualClock):
    """The virtual time since the node booted."""

    def __init__(self, time: Callable[[], float]) -> None:
        super().__init__()
        self._time = time

    def boottime(self) -> float:
        return self._time()


@dataclass
class Entry:
    """A kernel in the agent's checkpoint, which survives the agent. ``started``: whether the
    runtime was called. ``new``: whether this agent process created the entry. ``known``: whether
    this agent process has acted on the kernel or seen it."""

    spec: KernelSpec
    created_at: float
    started: bool = False
    new: bool = True
    known: bool = False
    ready: bool = False
    withdrawn: bool = False
    cause: TerminationCause | None = None
    outcome: KernelOutcome | None = None


@dataclass
class Node:
    """``on_start`` is called before a kernel is started. ``holds_leases``: whether the node's
    supervisors stop kernels whose lease expires."""

    name: str
    gpus: int
    now: Callable[[], float]
    new_id: Callable[[], str]
    on_start: Callable[[KernelSpec, str], None]
    holds_leases: bool = False
    up: bool = True
    faults: bool = True
    unresponsive_until: float = 0.0  # the runtime does not respond
    cpu: int = 8000
    incarnation: str = ""
    identity: str = ""
    stream: int = 0  # the number of its newest stream, which is stored with its identity
    applied_generation: int = 0  # by this process
    newest_generation: int = 0  # seen, and in the checkpoint
    refused_at: float = -1000.0  # when it last refused orders
    orders: dict[KernelId, KernelSpec] | None = None
    checkpoint: dict[KernelId, Entry] = field(default_factory=dict)
    runtime: dict[KernelId, NodeKernel] = field(default_factory=dict)
    unknown: set[KernelId] = field(default_factory=set)  # in the runtime, but not in the checkpoint
    listed: bool = True  # the runtime has listed its kernels since the agent started

    def __post_init__(self) -> None:
        self.incarnation = self.new_id()
        self.identity = self.new_id()
        self._disk = tempfile.TemporaryDirectory(prefix="moorage-node-")
        self.leases = self._new_leases()

    def _new_leases(self) -> KernelLeases:
        return KernelLeases(Path(self._disk.name), NodeClock(self.now))

    # Faults.

    def crash(self) -> None:
        """The agent process is killed; its kernels keep running."""
        self.up = False
        self.orders = None
        self.applied_generation = 0
        self.unknown.clear()

    def reboot(self) -> None:
        """The node restarts; its kernels are gone."""
        self.crash()
        self.runtime.clear()

    def lose_checkpoint(self) -> None:
        """The agent process is killed, and the checkpoint is lost along with the newest
        generation."""
        self.crash()
        self.checkpoint.clear()
        self.newest_generation = 0

    def lose_disk(self) -> None:
        """The state directory is lost: the node returns as another agent."""
        self.lose_checkpoint()
        self.identity = self.new_id()
        self.stream = 0
        (Path(self._disk.name) / "lease").unlink(missing_ok=True)

    def restart(self) -> None:
        """The agent process starts again."""
        self.up = True
        self.incarnation = self.new_id()
        self.listed = False
        self.leases = self._new_leases()
        for entry in self.checkpoint.values():
            entry.withdrawn = False
            entry.new = False
            entry.known = False
            if entry.outcome is None:
                self.leases.hold(entry.spec)

        self._list()

    def _list(self) -> None:
        """Ask the runtime for all of its kernels."""
        if self.listed or self.now() < self.unresponsive_until:
            return

        self.listed = True
        for kernel_id, entry in self.checkpoint.items():
            if entry.new:
                continue

            exists = kernel_id in self.runtime
            if entry.outcome is None and not exists:
                detail = (
                    "its node restarted"
                    if entry.started
                    else "the agent was killed before it started it"
                )
                entry.outcome = KernelOutcome(ObservedState.GONE, None, Reason.KERNEL_GONE, detail)

            entry.started = entry.started or exists

        self.unknown = self.runtime.keys() - self.checkpoint.keys()

    def end_faults(self) -> None:
        """The runtime responds again, and hung kernels react to stops and kills."""
        self.faults = False
        self.unresponsive_until = 0
        for kernel in self.runtime.values():
            kernel.simulated.hung = False

    def programs(self) -> dict[KernelId, KernelSpec]:
        """The kernels whose programs are running, whether an agent knows about them or not."""
        for kernel in self.runtime.values():
            kernel.advance(self.now())
        return {
            kernel_id: kernel.spec for kernel_id, kernel in self.runtime.items() if kernel.alive
        }

    # The agent's interface to the link.

    def take(self, orders: Orders | OrdersDelta) -> bool:
        if not policy.accepts(self.newest_generation, self.applied_generation, orders):
            self.refused_at = self.now()
            return False

        self.applied_generation = orders.generation
        self.newest_generation = self.applied_generation
        if isinstance(orders, Orders):
            self.orders = {spec.kernel_id: spec for spec in orders.kernels}
        else:
            assert self.orders is not None
            self.orders = {k: spec for k, spec in self.orders.items() if k not in orders.withdrawn}
            self.orders |= {spec.kernel_id: spec for spec in orders.added}

        self._reconcile()
        return True

    def next_stream(self) -> int:
        """The number of a new stream."""
        self.stream += 1
        return self.stream

    def renew_leases(self, sent_at: int) -> None:
        """A manager has stored the report that was sent at ``sent_at``."""
        self.programs()  # a lease that has already expired does not come back
        self.leases.renew(sent_at)
        self.step()  # kernels may have been waiting for it

    def report(self) -> Report:
        devices = tuple(
            SlotOffer(
                "cuda.device",
                1000,
                device_id=DeviceId(f"{self.name}-gpu{i}"),
                model="H100",
                memory_bytes=80 * GIB,
            )
            for i in range(self.gpus)
        )
        info = AgentInfo(
            AgentId(self.name), "default", "127.0.0.1", "0.1.0", "x86_64", ("process",), ("custom",),
            (SlotOffer("cpu", self.cpu), SlotOffer("mem", 64 * GIB), *devices), identity=self.identity,
            runtime_states=(RuntimeState("process", self.listed),),
            lease_runtimes=("process",) if self.holds_leases else (),
        )  # fmt: skip
        return Report(
            info, self.incarnation, self.applied_generation, self.observations(),
            newest_generation=self.newest_generation,
        )  # fmt: skip

    def observations(self) -> tuple[Observation, ...]:
        known = [
            self._observation(kernel_id, entry) for kernel_id, entry in self.checkpoint.items()
        ]
        unknown = [Observation(k, SessionId(""), ObservedState.UNKNOWN) for k in self.unknown]
        return (*known, *unknown)

    # Progress.

    def step(self) -> None:
        """Advance the kernels by the elapsed time; then the agent observes them and reconciles."""
        self.programs()
        if not self.up:
            return

        self._list()
        for kernel_id, entry in self.checkpoint.items():
            self._advance(kernel_id, entry)
            if entry.outcome is not None:
                self.leases.release(kernel_id)

        self._reconcile()

    def _state(self, entry: Entry) -> ObservedState:
        if entry.outcome is not None:
            return entry.outcome.state
        if not entry.started:
            return ObservedState.CREATING
        if self.now() < self.unresponsive_until:
            return ObservedState.UNKNOWN
        if entry.withdrawn or entry.cause:
            return ObservedState.STOPPING
        return ObservedState.RUNNING if entry.ready else ObservedState.CREATING

    def _advance(self, kernel_id: KernelId, entry: Entry) -> None:
        if entry.outcome is not None or not (self.listed or entry.new):
            return

        entry.known = True
        if not entry.started:
            if entry.withdrawn:
                entry.outcome = _outcome(
                    ObservedState.GONE, None, entry.cause or TerminationCause()
                )
            else:
                self._start(kernel_id, entry)

            return

        if self.now() < self.unresponsive_until:
            return

        kernel = self.runtime[kernel_id]
        now = self.now()
        simulated = kernel.simulated
        if not kernel.alive:
            cause = entry.cause or (TerminationCause() if entry.withdrawn else None)
            entry.outcome = _outcome(
                ObservedState.EXITED, simulated.exit_code, cause, kernel.lease_expired
            )
            return

        entry.ready = entry.ready or simulated.state is ObservedState.RUNNING
        late = not entry.ready and now >= entry.created_at + entry.spec.start_timeout_s
        if late and entry.cause is None:
            entry.cause = TerminationCause(Reason.START_TIMEOUT, "it was not ready in time")
        if entry.withdrawn or entry.cause:
            simulated.stop(now, entry.spec.stop_grace_s + KILL_MARGIN_S)

    def _start(self, kernel_id: KernelId, entry: Entry) -> None:
        script = KernelScript(**json.loads(entry.spec.command[1]))
        if script.refusal:
            entry.outcome = KernelOutcome(
                ObservedState.EXITED, None, Reason.CREATE_FAILED, script.refusal
            )
            return

        lease = None
        if entry.spec.lease_s:
            try:
                (acquiring := self.leases.acquire(entry.spec.lease_s)).send(None)
            except StopIteration as acquired:
                lease = acquired.value
            else:
                acquiring.close()
                return  # it waits for contact with a manager

        entry.started = True
        self.on_start(entry.spec, self.name)
        script = replace(script, hangs=script.hangs and self.faults)
        self.runtime[kernel_id] = NodeKernel(entry.spec, SimulatedKernel(script, self.now()), lease)
        self._check_devices()

    def _check_devices(self) -> None:
        granted: Counter[str] = Counter()
        for kernel in self.runtime.values():
            if kernel.alive:
                for grant in kernel.spec.devices:
                    granted[grant.device_id] += grant.amount

        for device, amount in granted.items():
            if amount > 1000:
                alive = [kernel_id for kernel_id, kernel in self.runtime.items() if kernel.alive]
                raise Violation(
                    f"{amount} of 1000 shares of device {device} are granted, to some of {alive}"
                )

    def _reconcile(self) -> None:
        states = {kernel_id: self._state(entry) for kernel_id, entry in self.checkpoint.items()}
        states |= dict.fromkeys(self.unknown, ObservedState.UNKNOWN)
        specs = {kernel_id: entry.spec for kernel_id, entry in self.checkpoint.items()}
        for action in policy.reconcile(
            self.orders, specs, states, () if self.listed else ("process",)
        ):
            match action:
                case policy.Create(spec):
                    self.checkpoint[spec.kernel_id] = Entry(spec, self.now())
                    self.leases.hold(spec)
                case policy.Adopt(spec):
                    self.unknown.discard(spec.kernel_id)
                    self.checkpoint[spec.kernel_id] = Entry(spec, self.now(), started=True)
                    self.leases.hold(spec)
                case policy.Stop(kernel_id):
                    self.checkpoint[kernel_id].withdrawn = True
                case policy.Remove(kernel_id):
                    self.runtime.pop(kernel_id, None)
                    self.leases.release(kernel_id)
                    del self.checkpoint[kernel_id]
                case policy.Destroy(kernel_id):
                    if not self.runtime[kernel_id].simulated.hung:
                        self.unknown.discard(kernel_id)
                        del self.runtime[kernel_id]

    def _observation(self, kernel_id: KernelId, entry: Entry) -> Observation:
        outcome = entry.outcome or KernelOutcome(
            self._state(entry) if entry.known else ObservedState.UNKNOWN
        )
        base = Observation(
            kernel_id, entry.spec.session_id, state=outcome.state, host="127.0.0.1", port=21000
        )
        return replace(
            base, exit_code=outcome.exit_code, reason=outcome.reason, detail=outcome.detail
        )


def _outcome(
    state: ObservedState,
    exit_code: int | None,
    cause: TerminationCause | None,
    lease_expired: bool = False,
) -> KernelOutcome:
    return determine_outcome(
        state,
        exit_code,
        oom=False,
        refused=False,
        detail="",
        cause=cause,
        lease_expired=lease_expired,
    )
