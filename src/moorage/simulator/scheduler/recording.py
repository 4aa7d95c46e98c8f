"""Recording: a trace of past work, built from the scheduler's decision log and the runs that
followed. Pure.

Times are in Unix microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.views.decisions import RunView
from moorage.manager.decision_log import RecordedPass
from moorage.manager.decision_log.encoding import changed_free_devices
from moorage.manager.decision_log.timeline import unix_micros
from moorage.manager.scheduling import AgentState, Pending, Policy
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX
from moorage.manager.scheduling.core.model import Allocation, KernelRequest, Quota, Running
from moorage.simulator.scheduler.jobs import SECOND
from moorage.simulator.scheduler.trace import Arrival, FixedKernel, Requeue, Trace, without_load

# A new session appears in a pass within this time. A session that appears later was not eligible
# before (backoff, or a start time set by its user): it is taken to arrive when it first appears.
_LATE = 5 * SECOND


@dataclass(slots=True)
class _Decisions:
    """Data collected from the decisions, one at a time."""

    agents: list[tuple[int, AgentState]] = field(default_factory=list)
    policies: list[tuple[int, Policy]] = field(default_factory=list)
    quotas: list[tuple[int, tuple[Quota, ...]]] = field(default_factory=list)
    current_agents: dict[AgentId, AgentState] = field(default_factory=dict)
    known: set[KernelId] = field(default_factory=set)  # main kernels of the observed attempts
    arrivals: dict[KernelId, tuple[Pending, int]] = field(default_factory=dict)
    attempts: Counter[SessionId] = field(default_factory=Counter)
    with_unmet_dependencies: set[KernelId] = field(default_factory=set)
    # Preempted sessions that have not been pending again, and the others' later attempts.
    requeued: set[SessionId] = field(default_factory=set)
    ended: set[SessionId] = field(default_factory=set)
    # By session and the number of its earlier arrivals.
    later: dict[tuple[SessionId, int], list[Pending]] = field(default_factory=dict)
    first: RecordedPass | None = None
    last: RecordedPass | None = None

    def add(self, decision: RecordedPass) -> None:
        if self.first is None:
            self.first = decision

        self.last = decision
        at = decision.at
        snapshot = decision.snapshot
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
            if item.kernel_id not in self.known:
                self._add_arrival(item, decision)
        for victim in decision.victims:
            (self.requeued if victim.how == "requeue" else self.ended).add(victim.session_id)

    def _add_arrival(self, item: Pending, decision: RecordedPass) -> None:
        if item.session_id in self.requeued:
            # This is not an arrival, because another policy may not preempt it.
            self.requeued.remove(item.session_id)
            self.known.add(item.kernel_id)
            number = self.attempts[item.session_id]
            self.later.setdefault((item.session_id, number), []).append(item)

            return

        if item.dependencies != "met" or item.earlier_agents:
            self.with_unmet_dependencies.add(item.kernel_id)
            return

        late = decision is not self.first and decision.at - item.queued_since > _LATE
        late = late or item.kernel_id in self.with_unmet_dependencies
        at = decision.at if late else item.queued_since
        if decision is not self.first:
            item = replace(item, retries=0, bypassed=0)

        self.attempts[item.session_id] += 1
        if (attempt := self.attempts[item.session_id]) > 1:
            # Under another policy, this attempt may arrive before the previous one has started.
            item = replace(item, session_id=SessionId(f"{item.session_id}/{attempt}"))

        self.known.add(item.kernel_id)
        self.arrivals[item.kernel_id] = item, at

    def attempts_of(self, item: Pending) -> list[Pending]:
        """The arrival ``item``, and the attempts that followed because it was preempted."""
        return [item, *self.later.get(_arrival_number(item), ())]

    def ended_by_preemption(self, item: Pending) -> bool:
        """Whether preemption ended its last attempt."""
        session_id, number = _arrival_number(item)
        return number == self.attempts[session_id] and self.was_cut_short(session_id)

    def was_cut_short(self, session_id: SessionId) -> bool:
        """Whether preemption ended its last run, so that its run time is unknown."""
        return session_id in self.requeued or session_id in self.ended


def _arrival_number(item: Pending) -> tuple[SessionId, int]:
    session_id, _, number = item.session_id.partition("/")
    return SessionId(session_id), int(number or 1)


def build_trace(
    decisions: Iterable[RecordedPass], runs: Iterable[RunView], end: int
) -> Trace | None:
    """Build the trace. ``runs``: everything that held an allocation between the first decision and
    ``end``. None if there was no decision."""
    collected = _Decisions()
    for decision in decisions:
        collected.add(decision)

    first = collected.first
    last = collected.last
    if first is None or last is None:
        return None

    runs_by_kernel = {KernelId(run.kernel_id): run for run in runs}
    waiting = {item.kernel_id for item in last.snapshot.pending} - {
        place.kernel_id for place in last.places
    }
    arrivals = []
    cancelled = 0
    recorded = set[KernelId]()
    for kernel_id, (item, at) in collected.arrivals.items():
        attempts = [_runs_of(attempt, runs_by_kernel) for attempt in collected.attempts_of(item)]
        recorded |= {KernelId(run.kernel_id) for own in attempts for run in own}
        if not attempts[0] and kernel_id not in waiting:
            cancelled += 1
            continue

        arrivals.append(_arrival(item, at, attempts, collected.ended_by_preemption(item)))

    fixed, requeues = _fixed_work(collected, runs_by_kernel, recorded)
    return Trace(
        group=first.snapshot.group,
        begin=first.at,
        end=max(last.at, min(end, _last_end(arrivals, runs_by_kernel.values(), end))),
        arrivals=tuple(sorted(arrivals, key=lambda arrival: (arrival.at, arrival.item.session_id))),
        agents=tuple(collected.agents),
        fixed=tuple(fixed),
        requeues=requeues,
        policies=tuple(collected.policies),
        quotas=tuple(collected.quotas),
        cursors=first.snapshot.cursors,
        cancelled=cancelled,
    )


def _runs_of(item: Pending, runs: Mapping[KernelId, RunView]) -> list[RunView]:
    return [run for kernel in item.kernels if (run := runs.get(kernel.kernel_id)) is not None]


def _arrival(item: Pending, at: int, attempts: list[list[RunView]], cut_short: bool) -> Arrival:
    """An arrival. ``attempts``: the runs of each attempt; only the last attempt may have run to its
    end."""
    spans = [_span(own) for own in attempts if own]
    return Arrival(
        item,
        at,
        runs=None if cut_short else _duration(attempts[-1]),
        started=spans[0][0] if spans else None,
        preemptible=all(run.preemptible for own in attempts for run in own),
        attempts=tuple(spans) if len(spans) > 1 or cut_short else (),
    )


def _fixed_work(
    collected: _Decisions, runs: Mapping[KernelId, RunView], recorded: set[KernelId]
) -> tuple[list[FixedKernel], dict[SessionId, Requeue]]:
    """The kernels of ``runs`` that are not in ``recorded``, and how their sessions wait once
    preempted."""
    assert collected.first is not None
    begin = collected.first.at
    again = dict[SessionId, Requeue]()
    for (session_id, number), attempts in collected.later.items():
        if number == 0:  # it started before the recording
            recorded |= {
                KernelId(run.kernel_id) for item in attempts for run in _runs_of(item, runs)
            }
            cut_short = collected.was_cut_short(session_id)
            own_runs = [own for item in attempts if (own := _runs_of(item, runs))]
            last = None if cut_short else _duration(_runs_of(attempts[-1], runs))
            again[session_id] = Requeue(attempts[0], last, tuple(map(_span, own_runs)))

    fixed = []
    for kernel_id, run in runs.items():
        if kernel_id in recorded:
            continue

        kernel = _fixed_kernel(run, begin)
        if kernel.end is not None and kernel.end <= begin:
            continue

        session_id = kernel.running.session_id
        if session_id in again or collected.was_cut_short(session_id):
            requeue = again.get(session_id)
            needs = None if requeue is None else requeue.runs
            end = None if needs is None else max(begin, kernel.running.started_at + needs)
            kernel = replace(kernel, end=end, preempted_at=kernel.end)

        fixed.append(kernel)

    for session_id, kernels in _by_session(fixed).items():
        if session_id not in again:
            item = _as_pending(kernels, collected.current_agents.get(kernels[0].agent_id))
            again[session_id] = Requeue(item, _full_run(kernels))

    return fixed, again


def _by_session(fixed: Iterable[FixedKernel]) -> dict[SessionId, list[FixedKernel]]:
    found: dict[SessionId, list[FixedKernel]] = {}
    for kernel in fixed:
        found.setdefault(kernel.running.session_id, []).append(kernel)
    return found


def _full_run(kernels: list[FixedKernel]) -> int | None:
    ends = [kernel.end for kernel in kernels if kernel.end is not None]
    if len(ends) < len(kernels):
        return None
    return max(1, max(ends) - min(kernel.running.started_at for kernel in kernels))


def _as_pending(fixed: list[FixedKernel], agent: AgentState | None) -> Pending:
    """The request of a session that was never seen pending, derived from its kernels' allocations.
    Agents like its own may run it."""
    main, *others = (kernel.running for kernel in fixed)
    separate = len({kernel.agent_id for kernel in fixed}) == len(fixed)
    return Pending(
        session_id=main.session_id,
        kernel_id=main.kernel_id,
        revision=1,
        priority=main.priority,
        created=main.started_at,
        retries=0,
        runtime=min(agent.runtimes, default="") if agent else "",
        engine=min(agent.engines, default="") if agent else "",
        slots=_request(main),
        user=main.user,
        project=main.project,
        sub_kernels=tuple(KernelRequest(kernel.kernel_id, _request(kernel)) for kernel in others),
        mode="multi-node" if separate else "single-node",
        time_limit=None if main.ends_at is None else main.ends_at - main.started_at,
        endpoint_id=main.endpoint_id,
    )


def _request(kernel: Running) -> dict[str, int]:
    slots: dict[str, int] = {}
    for slot, device_id, amount in kernel.allocations:
        name = slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX if device_id else slot
        slots[name] = slots.get(name, 0) + amount
    return slots


def _last_end(arrivals: list[Arrival], runs: Iterable[RunView], end: int) -> int:
    """The time at which the last kernel ended; ``end`` if a kernel had not ended or a session had
    not started."""
    ends = [end if run.released_at is None else unix_micros(run.released_at) for run in runs]
    ends += [end for arrival in arrivals if arrival.started is None]
    return max(ends, default=end)


def _same_limits(before: tuple[Quota, ...], after: tuple[Quota, ...]) -> bool:
    """Whether the two differ at most in this resource group's usage."""
    return [replace(quota, used={}, running=0) for quota in before] == [
        replace(quota, used={}, running=0) for quota in after
    ]


def _duration(runs: list[RunView]) -> int | None:
    """The time from the first start to the last end, at least 1; None while a kernel runs, or if
    none ran."""
    end = _end_of(runs)
    return None if end is None else max(1, end - _span(runs)[0])


def _span(runs: list[RunView]) -> tuple[int, int | None]:
    return unix_micros(min(run.taken_at for run in runs)), _end_of(runs)


def _end_of(runs: list[RunView]) -> int | None:
    ends = [run.released_at for run in runs if run.released_at is not None]
    return unix_micros(max(ends)) if ends and len(ends) == len(runs) else None


def _fixed_kernel(run: RunView, begin: int) -> FixedKernel:
    started = unix_micros(run.taken_at)
    running = Running(
        SessionId(run.session_id),
        KernelId(run.kernel_id),
        allocations=tuple(
            Allocation(take.slot, DeviceId(take.device_id), take.amount) for take in run.takes
        ),
        ends_at=None if run.limit_s is None else started + round(run.limit_s * SECOND),
        started_at=started,
        priority=run.priority,
        user=run.user,
        project=run.project,
        endpoint_id=None if run.endpoint_id is None else EndpointId(run.endpoint_id),
        preemptible=run.preemptible,
    )
    end = None if run.released_at is None else unix_micros(run.released_at)

    return FixedKernel(AgentId(run.agent_id), running, max(begin, started), end)
