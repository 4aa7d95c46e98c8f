"""Work that really came, out of what the scheduler decided and what then ran: to be played again.

Times are unix microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.views.decisions import RunView
from moorage.manager.decision_log import Decision
from moorage.manager.decision_log.encoding import changed_free_devices
from moorage.manager.decision_log.timeline import unix_micros
from moorage.manager.scheduling import AgentState, Pending, Policy
from moorage.manager.scheduling.core.demand import SHARES_SUFFIX
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.simulator.scheduler.traces import SECOND

# A session is planned within this after it came; where it was seen later it was not to start before (a pause
# before a retry, a time that its user asked for), and has waited since it was seen.
_LATE = 5 * SECOND


@dataclass(frozen=True, slots=True)
class Arrival:
    """A session that wants room since ``at``. ``runs``: how long it holds what it gets; None: it still did
    when the span ended, or never got it. ``started``: when it really got it."""

    item: Pending
    at: int
    runs: int | None
    started: int | None


@dataclass(frozen=True, slots=True)
class Fixed:
    """What ran where it ran, from ``begin`` to ``end`` (None: longer than the span), whatever the policy: it
    had its place before the span began, or nobody knows how it came by it."""

    agent_id: AgentId
    running: Running
    begin: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """``floor``: from when on an agent is so, when all of it is free; ``policies`` and ``quotas`` alike.
    ``cancelled``: sessions that left the queue without a place; they are not played. ``slot``: what is
    measured."""

    group: str
    begin: int
    end: int
    arrivals: tuple[Arrival, ...]
    fixed: tuple[Fixed, ...]
    floor: tuple[tuple[int, AgentState], ...]
    policies: tuple[tuple[int, Policy], ...]
    quotas: tuple[tuple[int, tuple[Quota, ...]], ...]
    cursors: Mapping[str, AgentId]
    cancelled: int
    slot: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot", _most_asked(self.arrivals))

    @property
    def policy(self) -> Policy:
        """The newest."""
        return self.policies[-1][1]

    @property
    def unseen(self) -> int:
        """Kernels that got their place within the span in a pass that is not kept."""
        return sum(fixed.running.started_at > self.begin for fixed in self.fixed)

    @property
    def endless(self) -> int:
        """Sessions of which it is not known how long they run."""
        return sum(arrival.runs is None for arrival in self.arrivals)


@dataclass(slots=True)
class _Gathered:
    floor: list[tuple[int, AgentState]] = field(default_factory=list)
    policies: list[tuple[int, Policy]] = field(default_factory=list)
    quotas: list[tuple[int, tuple[Quota, ...]]] = field(default_factory=list)
    agents: dict[AgentId, AgentState] = field(default_factory=dict)
    seen: dict[KernelId, tuple[Pending, int]] = field(default_factory=dict)
    attempts: Counter[SessionId] = field(default_factory=Counter)
    unmet: set[KernelId] = field(default_factory=set)
    first: Decision | None = None
    last: Decision | None = None

    def take(self, decision: Decision) -> None:
        if self.first is None:
            self.first = decision
        self.last = decision
        at, snapshot = decision.at, decision.snapshot
        if not self.policies or self.policies[-1][1] != decision.policy:
            self.policies.append((at, decision.policy))
        if not self.quotas or not _alike(self.quotas[-1][1], snapshot.quotas):
            self.quotas.append((at, snapshot.quotas))
        agents = {agent.agent_id: agent for agent in snapshot.agents}
        for agent_id, agent in agents.items():
            known = self.agents.get(agent_id)
            if known is not agent and (known is None or changed_free_devices(known, agent) is None):
                self.floor.append((at, empty(agent)))
        for agent_id in self.agents.keys() - agents.keys():
            self.floor.append((at, replace(empty(self.agents[agent_id]), available=False)))
        self.agents = agents
        for item in snapshot.pending:
            if item.kernel_id not in self.seen:
                self._came(item, decision)

    def _came(self, item: Pending, decision: Decision) -> None:
        if item.dependencies != "met":
            self.unmet.add(item.kernel_id)
            return
        late = decision is not self.first and decision.at - item.queued_since > _LATE
        at = decision.at if late or item.kernel_id in self.unmet else item.queued_since
        if decision is not self.first:
            item = replace(item, retries=0, bypassed=0)
        self.attempts[item.session_id] += 1
        if (attempt := self.attempts[item.session_id]) > 1:
            # Under another policy it may come before the one before has its place.
            item = replace(item, session_id=SessionId(f"{item.session_id}/{attempt}"))
        self.seen[item.kernel_id] = item, at


def gather(decisions: Iterable[Decision], runs: Iterable[RunView], end: int) -> Recorded | None:
    """``runs``: all that held something between the first of ``decisions`` and ``end``. None: nothing was."""
    found = _Gathered()
    for decision in decisions:
        found.take(decision)
    first, last = found.first, found.last
    if first is None or last is None:
        return None
    ran = {KernelId(run.kernel_id): run for run in runs}
    waiting = {item.kernel_id for item in last.snapshot.pending} - {place.kernel_id for place in last.places}
    arrivals, cancelled, known = [], 0, set[KernelId]()
    for kernel_id, (item, at) in found.seen.items():
        known.update(kernel.kernel_id for kernel in item.kernels)
        mine = [ran[kernel.kernel_id] for kernel in item.kernels if kernel.kernel_id in ran]
        if not mine and kernel_id not in waiting:
            cancelled += 1
            continue
        started = min((unix_micros(run.taken_at) for run in mine), default=None)
        arrivals.append(Arrival(item, at, _length(mine), started))
    others = [_fixed(run, first.at) for name, run in ran.items() if name not in known]
    fixed = [one for one in others if one.end is None or one.end > first.at]
    return Recorded(
        group=first.snapshot.group,
        begin=first.at,
        end=max(last.at, min(end, _quiet_from(arrivals, fixed, end))),
        arrivals=tuple(sorted(arrivals, key=lambda arrival: (arrival.at, arrival.item.session_id))),
        fixed=tuple(fixed),
        floor=tuple(found.floor),
        policies=tuple(found.policies),
        quotas=tuple(found.quotas),
        cursors=first.snapshot.cursors,
        cancelled=cancelled,
    )


def _most_asked(arrivals: Iterable[Arrival]) -> str:
    """Of the families of devices the one that was asked for most, as it is asked for; cpu, where none was."""
    asked: dict[str, int] = {}
    for arrival in arrivals:
        for slot, amount in arrival.item.shape.amounts.items():
            if slot.endswith(SHARES_SUFFIX):
                asked[slot] = asked.get(slot, 0) + amount
    return max(sorted(asked), key=lambda slot: asked[slot]) if asked else "cpu"


def empty(agent: AgentState) -> AgentState:
    """The same with all of it free."""
    devices = tuple(replace(device, free=device.capacity) for device in agent.devices)
    return replace(agent, free=dict(agent.capacity), devices=devices, running=(), kernels=0)


def _quiet_from(arrivals: list[Arrival], fixed: list[Fixed], end: int) -> int:
    """When the last of what is known to end had ended; ``end`` where something had not."""
    ends = [one.end for one in fixed]
    ends += [None if a.started is None or a.runs is None else a.started + a.runs for a in arrivals]
    return max((end if one is None else one for one in ends), default=end)


def _alike(old: tuple[Quota, ...], new: tuple[Quota, ...]) -> bool:
    """Whether the limits are the same."""
    return [(q.scope, q.name, q.limits, q.sessions) for q in old] == [
        (q.scope, q.name, q.limits, q.sessions) for q in new
    ]


def _length(runs: list[RunView]) -> int | None:
    if not runs:
        return None
    ends = [run.released_at for run in runs]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return None
    return max(1, unix_micros(max(known)) - unix_micros(min(run.taken_at for run in runs)))


def _fixed(run: RunView, begin: int) -> Fixed:
    taken = unix_micros(run.taken_at)
    running = Running(
        SessionId(run.session_id),
        KernelId(run.kernel_id),
        tuple(Allocation(take.slot, DeviceId(take.device_id), take.amount) for take in run.takes),
        None if run.limit_s is None else taken + round(run.limit_s * SECOND),
        taken,
        run.priority,
        run.user,
        run.project,
        None if run.endpoint_id is None else EndpointId(run.endpoint_id),
    )
    return Fixed(AgentId(run.agent_id), running, max(begin, taken), _micros(run.released_at))


def _micros(at: datetime | None) -> int | None:
    return None if at is None else unix_micros(at)
