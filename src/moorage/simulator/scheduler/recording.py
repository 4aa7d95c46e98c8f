"""Recording: a trace of past work, built from the scheduler's decision log and from what then ran. Pure.

Times are unix microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.views.decisions import RunView
from moorage.manager.decision_log import Decision
from moorage.manager.decision_log.encoding import changed_free_devices
from moorage.manager.decision_log.timeline import unix_micros
from moorage.manager.scheduling import AgentState, Pending, Policy
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.simulator.scheduler.jobs import SECOND
from moorage.simulator.scheduler.trace import Arrival, FixedKernel, Trace, without_load

# A new session is in a pass within this time. One that first appears later was not eligible before (backoff,
# or a start time that its user set): it arrives when it first appears.
_LATE = 5 * SECOND


@dataclass(slots=True)
class _Decisions:
    """Data collected from the decisions, one at a time."""

    agents: list[tuple[int, AgentState]] = field(default_factory=list)
    policies: list[tuple[int, Policy]] = field(default_factory=list)
    quotas: list[tuple[int, tuple[Quota, ...]]] = field(default_factory=list)
    current_agents: dict[AgentId, AgentState] = field(default_factory=dict)
    arrivals: dict[KernelId, tuple[Pending, int]] = field(default_factory=dict)
    attempts: Counter[SessionId] = field(default_factory=Counter)
    with_unmet_dependencies: set[KernelId] = field(default_factory=set)
    first: Decision | None = None
    last: Decision | None = None

    def add(self, decision: Decision) -> None:
        if self.first is None:
            self.first = decision
        self.last = decision
        at, snapshot = decision.at, decision.snapshot
        if not self.policies or self.policies[-1][1] != decision.policy:
            self.policies.append((at, decision.policy))
        if not self.quotas or not _same_limits(self.quotas[-1][1], snapshot.quotas):
            self.quotas.append((at, snapshot.quotas))
        agents = {agent.agent_id: agent for agent in snapshot.agents}
        for agent_id, agent in agents.items():
            known = self.current_agents.get(agent_id)
            if known is not agent and (known is None or changed_free_devices(known, agent) is None):
                self.agents.append((at, without_load(agent)))
        for agent_id in self.current_agents.keys() - agents.keys():
            removed = replace(without_load(self.current_agents[agent_id]), available=False)
            self.agents.append((at, removed))
        self.current_agents = agents
        for item in snapshot.pending:
            if item.kernel_id not in self.arrivals:
                self._add_arrival(item, decision)

    def _add_arrival(self, item: Pending, decision: Decision) -> None:
        if item.dependencies != "met":
            self.with_unmet_dependencies.add(item.kernel_id)
            return
        late = decision is not self.first and decision.at - item.queued_since > _LATE
        late = late or item.kernel_id in self.with_unmet_dependencies
        at = decision.at if late else item.queued_since
        if decision is not self.first:
            item = replace(item, retries=0, bypassed=0)
        self.attempts[item.session_id] += 1
        if (attempt := self.attempts[item.session_id]) > 1:
            # Under another policy this attempt may arrive before the previous one has started.
            item = replace(item, session_id=SessionId(f"{item.session_id}/{attempt}"))
        self.arrivals[item.kernel_id] = item, at


def build_trace(decisions: Iterable[Decision], runs: Iterable[RunView], end: int) -> Trace | None:
    """``runs``: everything that held an allocation between the first decision and ``end``. None: there was no
    decision."""
    collected = _Decisions()
    for decision in decisions:
        collected.add(decision)
    first, last = collected.first, collected.last
    if first is None or last is None:
        return None
    runs_by_kernel = {KernelId(run.kernel_id): run for run in runs}
    waiting = {item.kernel_id for item in last.snapshot.pending} - {place.kernel_id for place in last.places}
    arrivals, cancelled, recorded = [], 0, set[KernelId]()
    for kernel_id, (item, at) in collected.arrivals.items():
        kernel_ids = [kernel.kernel_id for kernel in item.kernels]
        recorded.update(kernel_ids)
        own_runs = [run for each in kernel_ids if (run := runs_by_kernel.get(each)) is not None]
        if not own_runs and kernel_id not in waiting:
            cancelled += 1
            continue
        started = min((unix_micros(run.taken_at) for run in own_runs), default=None)
        arrivals.append(Arrival(item, at, _duration(own_runs), started))
    others = [_fixed_kernel(run, first.at) for each, run in runs_by_kernel.items() if each not in recorded]
    fixed = [kernel for kernel in others if kernel.end is None or kernel.end > first.at]
    return Trace(
        group=first.snapshot.group,
        begin=first.at,
        end=max(last.at, min(end, _last_end(arrivals, fixed, end))),
        arrivals=tuple(sorted(arrivals, key=lambda arrival: (arrival.at, arrival.item.session_id))),
        agents=tuple(collected.agents),
        fixed=tuple(fixed),
        policies=tuple(collected.policies),
        quotas=tuple(collected.quotas),
        cursors=first.snapshot.cursors,
        cancelled=cancelled,
    )


def _last_end(arrivals: list[Arrival], fixed: list[FixedKernel], end: int) -> int:
    """Time at which the last kernel ended; ``end`` if one had not ended."""
    ends = [kernel.end for kernel in fixed]
    ends += [None if a.started is None or a.runs is None else a.started + a.runs for a in arrivals]
    return max((end if at is None else at for at in ends), default=end)


def _same_limits(before: tuple[Quota, ...], after: tuple[Quota, ...]) -> bool:
    return [(q.scope, q.name, q.limits, q.sessions) for q in before] == [
        (q.scope, q.name, q.limits, q.sessions) for q in after
    ]


def _duration(runs: list[RunView]) -> int | None:
    """From the first start to the last end, at least 1; None while one runs, and without any run."""
    ends = [run.released_at for run in runs if run.released_at is not None]
    if not runs or len(ends) < len(runs):
        return None
    return max(1, unix_micros(max(ends)) - unix_micros(min(run.taken_at for run in runs)))


def _fixed_kernel(run: RunView, begin: int) -> FixedKernel:
    started = unix_micros(run.taken_at)
    running = Running(
        SessionId(run.session_id),
        KernelId(run.kernel_id),
        tuple(Allocation(take.slot, DeviceId(take.device_id), take.amount) for take in run.takes),
        None if run.limit_s is None else started + round(run.limit_s * SECOND),
        started,
        run.priority,
        run.user,
        run.project,
        None if run.endpoint_id is None else EndpointId(run.endpoint_id),
    )
    end = None if run.released_at is None else unix_micros(run.released_at)
    return FixedKernel(AgentId(run.agent_id), running, max(begin, started), end)
