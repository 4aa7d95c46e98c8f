"""An agent and its node in virtual time: the real ``agent.reconcile`` over a model of what runs.

It keeps the promises of ``agent/kernel``: intent in the ledger before anything is
started, a kernel of the ledger is never started again, its end is told until its order is withdrawn.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from moorage.agent.kernel import reconcile as policy
from moorage.agent.kernel.outcome import Outcome, TerminationCause, determine_outcome
from moorage.common.link.messages import AgentInfo, Observation, Orders, Report, SlotOffer
from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as Seen

GIB = 1024**3
STOP_MARGIN_S = 3.0


class Violation(AssertionError):
    """Something that must never be."""


@dataclass(frozen=True)
class Script:
    """How a kernel behaves, in seconds; part of its command. ``stubborn``: it does not end when it is told
    to, nor when it is killed (a hanging driver), before the world is calm again."""

    starts_in: float = 1.0
    runs_for: float | None = None
    exit_code: int = 0
    refused: bool = False
    ends_in: float = 0.5
    stubborn: bool = False

    def command(self) -> list[str]:
        return ["script", json.dumps(self.__dict__)]


@dataclass
class Running:
    """What the node runs. It needs no agent."""

    spec: KernelSpec
    script: Script
    begun: float
    ends_at: float | None = None  # told to end
    exit_code: int | None = None  # ended, and not cleared away yet

    def alive(self) -> bool:
        return self.exit_code is None


@dataclass
class Entry:
    """What the agent remembers over its own death. ``started``: the runtime was asked."""

    spec: KernelSpec
    created_at: float
    started: bool = False
    ready: bool = False
    withdrawn: bool = False
    doom: TerminationCause | None = None
    outcome: Outcome | None = None


@dataclass
class Node:
    name: str
    gpus: int
    now: Callable[[], float]
    new_id: Callable[[], str]
    note_start: Callable[[KernelId, str], None]
    up: bool = True
    calm: bool = False
    blind_until: float = 0.0  # the runtime does not answer
    cpu: int = 8000
    incarnation: str = ""
    identity: str = ""
    stream: int = 0  # the number of its newest stream, kept with its identity
    taken: int = 0
    newest: int = 0
    orders: Orders | None = None
    ledger: dict[KernelId, Entry] = field(default_factory=dict)
    runtime: dict[KernelId, Running] = field(default_factory=dict)
    strays: set[KernelId] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.incarnation, self.identity = self.new_id(), self.new_id()

    # -- what befalls it --

    def die(self) -> None:
        """The agent process is killed; kernels run on."""
        self.up, self.orders, self.taken = False, None, 0
        self.strays.clear()

    def reboot(self) -> None:
        """The node goes down with all that runs."""
        self.die()
        self.runtime.clear()

    def forget_all(self) -> None:
        """Its disk is lost, ledger and generation with it."""
        self.die()
        self.ledger.clear()
        self.newest = 0

    def lose_disk(self) -> None:
        """All that was in its state directory is lost: it comes back as another agent."""
        self.forget_all()
        self.identity, self.stream = self.new_id(), 0

    def come_back(self) -> None:
        self.up, self.incarnation = True, self.new_id()
        for kernel_id, entry in self.ledger.items():
            entry.withdrawn = False
            there = kernel_id in self.runtime
            if entry.outcome is None and not there:
                why = (
                    "its node restarted"
                    if entry.started
                    else "the agent was killed just before it started it"
                )
                entry.outcome = Outcome(Seen.GONE, None, Reason.KERNEL_GONE, why)
            entry.started = entry.started or there
        self.strays = {kernel_id for kernel_id in self.runtime if kernel_id not in self.ledger}

    # -- what it does --

    def take(self, orders: Orders) -> bool:
        if not policy.accepts(self.newest, orders):
            return False
        self.taken = self.newest = orders.generation
        self.orders = orders
        self._reconcile()
        return True

    def step(self) -> None:
        """Time has passed: kernels go their way, and the agent looks at them."""
        for kernel in self.runtime.values():
            self._age(kernel)
        if not self.up:
            return
        for kernel_id, entry in self.ledger.items():
            self._live(kernel_id, entry)
        self._reconcile()

    def dial(self) -> int:
        """The number of a new stream."""
        self.stream += 1
        return self.stream

    def report(self) -> Report:
        devices = tuple(
            SlotOffer("cuda.device", 1000, DeviceId(f"{self.name}-gpu{i}"), "H100", 80 * GIB)
            for i in range(self.gpus)
        )
        info = AgentInfo(
            AgentId(self.name), "default", "127.0.0.1", "0.1.0", "x86_64", ("process",), ("custom",),
            (SlotOffer("cpu", self.cpu), SlotOffer("mem", 64 * GIB), *devices), identity=self.identity,
        )  # fmt: skip
        return Report(info, self.incarnation, self.taken, self.observations())

    def observations(self) -> tuple[Observation, ...]:
        told = [self._observation(kernel_id, entry) for kernel_id, entry in self.ledger.items()]
        strays = [Observation(k, SessionId(""), Seen.UNKNOWN) for k in self.strays]
        return (*told, *strays)

    # -- inside --

    def _age(self, kernel: Running) -> None:
        script, now = kernel.script, self.now()
        if not kernel.alive():
            return
        if kernel.ends_at is not None and now >= kernel.ends_at and (not script.stubborn or self.calm):
            kernel.exit_code = -15
        elif script.runs_for is not None and now >= kernel.begun + script.starts_in + script.runs_for:
            kernel.exit_code = script.exit_code

    def _state(self, kernel_id: KernelId, entry: Entry) -> Seen:
        if entry.outcome is not None:
            return entry.outcome.state
        if not entry.started:
            return Seen.CREATING
        if self.now() < self.blind_until:
            return Seen.UNKNOWN
        if entry.withdrawn or entry.doom:
            return Seen.STOPPING
        return Seen.RUNNING if entry.ready else Seen.CREATING

    def _live(self, kernel_id: KernelId, entry: Entry) -> None:
        if entry.outcome is not None:
            return
        if not entry.started:
            if entry.withdrawn:
                entry.outcome = determine_outcome(
                    Seen.GONE,
                    None,
                    oom=False,
                    refused=False,
                    detail="",
                    cause=entry.doom or TerminationCause(),
                )
            else:
                self._start(kernel_id, entry)
            return
        if self.now() < self.blind_until:
            return
        kernel, now = self.runtime[kernel_id], self.now()
        if not kernel.alive():
            doom = entry.doom or (TerminationCause() if entry.withdrawn else None)
            entry.outcome = determine_outcome(
                Seen.EXITED, kernel.exit_code, oom=False, refused=False, detail="", cause=doom
            )
            return
        if not entry.ready and now >= kernel.begun + kernel.script.starts_in:
            entry.ready = True
        if not entry.ready and now >= entry.created_at + entry.spec.start_timeout_s and entry.doom is None:
            entry.doom = TerminationCause(Reason.START_TIMEOUT, "it was not ready in time")
        if (entry.withdrawn or entry.doom) and kernel.ends_at is None:
            kernel.ends_at = now + min(kernel.script.ends_in, entry.spec.stop_grace_s + STOP_MARGIN_S)

    def _start(self, kernel_id: KernelId, entry: Entry) -> None:
        script = Script(**json.loads(entry.spec.command[1]))
        if script.refused:
            entry.outcome = Outcome(Seen.EXITED, None, Reason.CREATE_FAILED, "no such program")
            return
        entry.started = True
        self.note_start(kernel_id, self.name)
        self.runtime[kernel_id] = Running(entry.spec, script, self.now())
        held: Counter[str] = Counter()
        for kernel in self.runtime.values():
            if kernel.alive():
                for grant in kernel.spec.devices:
                    held[grant.device_id] += grant.amount
        for device, amount in held.items():
            if amount > 1000:
                holders = [k for k, r in self.runtime.items() if r.alive()]
                raise Violation(f"device {device} is held {amount} of 1000 by kernels among {holders}")

    def _reconcile(self) -> None:
        states = {kernel_id: self._state(kernel_id, entry) for kernel_id, entry in self.ledger.items()}
        states |= dict.fromkeys(self.strays, Seen.UNKNOWN)
        specs = {kernel_id: entry.spec for kernel_id, entry in self.ledger.items()}
        for action in policy.reconcile(self.orders, specs, states):
            match action:
                case policy.Create(spec):
                    self.ledger[spec.kernel_id] = Entry(spec, self.now())
                case policy.Adopt(spec):
                    self.strays.discard(spec.kernel_id)
                    self.ledger[spec.kernel_id] = Entry(spec, self.now(), started=True)
                case policy.Stop(kernel_id):
                    self.ledger[kernel_id].withdrawn = True
                case policy.Remove(kernel_id):
                    self.runtime.pop(kernel_id, None)
                    del self.ledger[kernel_id]
                case policy.Destroy(kernel_id):
                    kernel = self.runtime[kernel_id]
                    if not kernel.script.stubborn or self.calm:
                        self.strays.discard(kernel_id)
                        del self.runtime[kernel_id]

    def _observation(self, kernel_id: KernelId, entry: Entry) -> Observation:
        outcome = entry.outcome or Outcome(self._state(kernel_id, entry))
        base = Observation(kernel_id, entry.spec.session_id, outcome.state, "127.0.0.1", 21000)
        return replace(base, exit_code=outcome.exit_code, reason=outcome.reason, detail=outcome.detail)
