"""Scheduler simulation of a trace in virtual time, with a scheduling pass whenever something
changes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.manager.scheduling import AgentState, Pending, Place, Policy, Snapshot
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX, in_shares
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.manager.scheduling.core.results import Victim
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache
from moorage.manager.scheduling.placement.selector_plugin import Selector
from moorage.simulator.scheduler.trace import Arrival, FixedKernel, Trace

# Policies by name; unset options have a new resource group's defaults.
POLICIES: Mapping[str, Policy] = {
    "strict": Policy(hol="strict"),
    "skip": Policy(hol="skip"),
    "greedy": Policy(hol="skip", max_bypasses=None, max_skip_age=None),
    "backfill": Policy(hol="backfill"),
    "lifo": Policy(strategy="lifo"),
    "drf": Policy(strategy="drf"),
}


@dataclass(frozen=True, slots=True)
class SimulatedOutcome:
    """The outcome of one session. ``amount`` is in the trace's slot. ``started`` is None if it did
    not start within the trace."""

    session: str
    arrived: int
    amount: int
    runs: int
    user: str
    priority: int
    started: int | None
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation. Amounts are in the trace's slot. ``outcomes`` are in the order of
    arrival. ``usage``: the amount in use from the given time on. ``capacity``: the mean over the
    trace; ``largest_agent``: the most that one agent has. ``span``: start and end of a recording;
    None for a trace that is simulated until everything has ended."""

    outcomes: tuple[SimulatedOutcome, ...]
    usage: tuple[tuple[int, int], ...]
    capacity: int
    largest_agent: int
    passes: int
    span: tuple[int, int] | None


def simulate(
    trace: Trace, policy: Policy | None = None, selectors: Mapping[str, Selector] | None = None
) -> SimulationResult:
    """Run every session of the trace under ``policy``; None means the trace's own policies.

    There is one scheduling pass for each time at which something arrives, ends or changes; retries
    and bypasses are counted in these passes. Starting takes no time. A preempted session stops when
    its grace period ends; if it is requeued, it then waits again and runs again from the start.
    """
    state = _State(trace, policy, selectors)
    while state.events and (trace.end is None or state.events[0][0] <= trace.end):
        now = state.events[0][0]
        while state.events and state.events[0][0] == now:
            state.apply(now, heappop(state.events)[2])

        if state.pending:
            state.schedule(now)

    started = [state.started.get(arrival.item.kernel_id) for arrival in trace.arrivals]
    preemptions = [state.preemptions[arrival.item.session_id] for arrival in trace.arrivals]
    return _result(trace, started, preemptions=preemptions, usage=state.usage, passes=state.passes)


def observe(trace: Trace) -> SimulationResult:
    """The recorded waits and usage, without a simulation."""
    changes: dict[int, int] = {}
    for kernel in trace.fixed:
        end = kernel.preempted_at or kernel.end
        _add_usage(changes, kernel.begin, end, _amount(kernel.running.allocations, trace.slot))

    spans = [(arrival.item, _recorded_spans(arrival)) for arrival in trace.arrivals]
    spans += [(requeue.item, requeue.attempts) for requeue in trace.requeues.values()]
    for item, attempts in spans:
        amount = item.shape.amounts.get(trace.slot, 0)
        for started, end in attempts:
            _add_usage(changes, max(trace.begin, started), end, amount)

    in_use = 0
    usage = {}
    for at in sorted(changes):
        in_use += changes[at]
        usage[at] = in_use

    preemptions = [max(0, len(arrival.attempts) - 1) for arrival in trace.arrivals]
    return _result(
        trace,
        [arrival.started for arrival in trace.arrivals],
        preemptions=preemptions,
        usage=usage,
        passes=0,
    )


def _recorded_spans(arrival: Arrival) -> Sequence[tuple[int, int | None]]:
    if arrival.attempts or arrival.started is None:
        return arrival.attempts
    return ((arrival.started, None if arrival.runs is None else arrival.started + arrival.runs),)


def _add_usage(changes: dict[int, int], begin: int, end: int | None, amount: int) -> None:
    changes[begin] = changes.get(begin, 0) + amount
    if end is not None:
        end = max(begin, end)
        changes[end] = changes.get(end, 0) - amount


def _result(
    trace: Trace,
    started: Sequence[int | None],
    preemptions: Sequence[int],
    usage: Mapping[int, int],
    *,
    passes: int,
) -> SimulationResult:
    capacity, largest = _capacity(trace)
    rows = zip(trace.arrivals, started, preemptions, strict=True)
    outcomes = tuple(_outcome(trace, *row) for row in rows)
    span = None if trace.end is None else (trace.begin, trace.end)

    return SimulationResult(
        outcomes,
        tuple(sorted(usage.items())),
        capacity=capacity,
        largest_agent=largest,
        passes=passes,
        span=span,
    )


def _outcome(
    trace: Trace, arrival: Arrival, started: int | None, preemptions: int
) -> SimulatedOutcome:
    item = arrival.item
    runs = arrival.runs
    if runs is None:  # at least until the recording ends
        assert trace.end is not None, "only a recording has sessions of unknown run time"
        runs = max(1, trace.end - (arrival.at if started is None else started))

    amount = item.shape.amounts.get(trace.slot, 0)
    return SimulatedOutcome(
        item.session_id,
        arrival.at,
        amount=amount,
        runs=runs,
        user=item.user,
        priority=item.priority,
        started=started,
        preemptions=preemptions,
    )


def _capacity(trace: Trace) -> tuple[int, int]:
    """Mean capacity over the trace, and the largest capacity of one agent; both at least 1."""
    area = 0
    largest = 0
    since = trace.begin
    end = trace.begin if trace.end is None else trace.end
    capacities: dict[AgentId, int] = {}
    for at, agent in trace.agents:
        area += sum(capacities.values()) * (at - since)
        since = at
        amount = agent.packed.capacity.get(trace.slot, 0) if agent.available else 0
        capacities[agent.agent_id] = amount
        largest = max(largest, amount)

    area += sum(capacities.values()) * (end - since)
    length = end - trace.begin
    return round(area / length) if length else sum(capacities.values()), largest or 1


def _amount(allocations: Sequence[Allocation], slot: str) -> int:
    """The amount of ``slot``. Requests count a device family in 1/1000 shares, and allocations
    count its devices."""
    family = (
        slot.removesuffix(SHARES_SUFFIX) + DEVICE_SUFFIX if slot.endswith(SHARES_SUFFIX) else slot
    )
    return sum(allocation.amount for allocation in allocations if allocation.slot == family)


@dataclass(frozen=True, slots=True)
class _Quotas:
    quotas: tuple[Quota, ...]


@dataclass(frozen=True, slots=True)
class _Release:
    """A kernel has ended."""

    agent_id: AgentId
    running: Running


_Event = Arrival | FixedKernel | AgentState | Policy | _Quotas | _Release


class _State:
    """The simulated resource group at one point in virtual time."""

    def __init__(
        self, trace: Trace, policy: Policy | None, selectors: Mapping[str, Selector] | None
    ) -> None:
        self._group = trace.group
        self._slot = trace.slot
        self._selectors = selectors
        self._planners = PlannerCache()
        self._numbers = count()
        self._policy = policy or trace.policies[0][1]
        self._quotas: tuple[Quota, ...] = ()
        self._idle_agents: dict[AgentId, AgentState] = {}  # without load
        self._agents: dict[AgentId, AgentState] = {}
        self._changed_agents: dict[AgentId, None] = {}  # an ordered set
        self._running: dict[AgentId, dict[KernelId, Running]] = {}
        self._cursors = dict(trace.cursors)

        # By session: its pending request, and what is known about its run once it starts.
        self._items: dict[SessionId, Pending] = {each: r.item for each, r in trace.requeues.items()}
        self._run_times: dict[SessionId, int | None] = {
            each: r.runs for each, r in trace.requeues.items()
        }
        self._not_preemptible: set[SessionId] = set()

        # kernels that have not ended
        self._placed: dict[SessionId, list[tuple[AgentId, KernelId]]] = {}
        self._requeued: set[SessionId] = set()  # stopping, and pending again afterwards
        self.preemptions: Counter[SessionId] = Counter()
        self._in_use = 0
        self.pending: dict[SessionId, Pending] = {}
        self.started: dict[KernelId, int] = {}
        self.usage: dict[int, int] = {}
        self.passes = 0
        self.events: list[tuple[int, int, _Event]] = []
        for at, agent in trace.agents:
            self._push(at, agent)
        for at, quotas in trace.quotas:
            self._push(at, _Quotas(quotas))

        if policy is None:
            for at, recorded in trace.policies:
                self._push(at, recorded)

        for kernel in trace.fixed:
            self._push(kernel.begin, kernel)
        for arrival in trace.arrivals:
            self._push(max(trace.begin, arrival.at), arrival)

    def _push(self, at: int, event: _Event) -> None:
        # The number orders simultaneous events, which are all applied before a pass.
        heappush(self.events, (at, next(self._numbers), event))

    def apply(self, now: int, event: _Event) -> None:
        match event:
            case Arrival():
                session_id = event.item.session_id
                self.pending[session_id] = self._items[session_id] = event.item
                self._run_times[session_id] = event.runs
                if not event.preemptible:
                    self._not_preemptible.add(session_id)
            case _Release():
                self._release(now, event.agent_id, event.running)
            case FixedKernel():
                end = None if event.end is None else max(now, event.end)
                self._run(event.agent_id, event.running, now, end)
            case AgentState():
                self._idle_agents[event.agent_id] = event
                self._changed_agents[event.agent_id] = None
            case Policy():
                self._policy = event
            case _Quotas():
                self._quotas = event.quotas

    def schedule(self, now: int) -> None:
        """Run one scheduling pass, and apply the changes that a manager stores: cursors, retries,
        bypasses, starts."""
        self.passes += 1
        for agent_id in self._changed_agents:
            self._update_agent(agent_id)

        self._changed_agents.clear()
        agents = tuple(self._agents.values())
        pending = tuple(self.pending.values())
        snapshot = Snapshot(
            self._group,
            agents,
            pending=pending,
            quotas=self._quotas_in_use(),
            cursors=self._cursors,
        )
        plan = self._planners.plan(snapshot, self._policy, now, self._selectors)
        self._cursors |= plan.cursors
        max_retries = max(1, self._policy.num_retries_to_skip)
        for hold in plan.holds:
            if hold.capacity and (item := self.pending[hold.session_id]).retries < max_retries:
                self.pending[hold.session_id] = replace(item, retries=item.retries + 1)
        for session_id, bypassed in plan.bypasses.items():
            self.pending[session_id] = replace(self.pending[session_id], bypassed=bypassed)
        for place in plan.places:
            self._start(place, now)
        for victim in plan.victims:
            self._preempt(victim, now)

    def _preempt(self, victim: Victim, now: int) -> None:
        """Preempt a session, whose kernels stop when the grace period ends."""
        session_id = victim.session_id
        ends_at = now + victim.grace
        self.preemptions[session_id] += 1
        if victim.how == "requeue":
            self._requeued.add(session_id)

        for agent_id, kernel_id in self._placed[session_id]:
            running = self._running[agent_id][kernel_id]
            stopping = replace(running, terminating=True, ends_at=ends_at)
            self._running[agent_id][kernel_id] = stopping
            self._changed_agents[agent_id] = None
            self._push(ends_at, _Release(agent_id, stopping))

    def _release(self, now: int, agent_id: AgentId, running: Running) -> None:
        session_id = running.session_id
        kernel_id = running.kernel_id
        if self._running[agent_id].get(kernel_id) is not running:
            return  # it is being stopped, and ends at that time

        del self._running[agent_id][kernel_id]
        self._changed_agents[agent_id] = None
        self._in_use -= _amount(running.allocations, self._slot)
        self.usage[now] = self._in_use
        placed = self._placed[session_id]
        placed.remove((agent_id, kernel_id))

        if not placed and session_id in self._requeued:
            self._requeued.remove(session_id)
            item = replace(self._items[session_id], retries=0, bypassed=0, waiting_since=now)
            self.pending[session_id] = self._items[session_id] = item

    def _start(self, place: Place, now: int) -> None:
        item = self.pending.pop(place.session_id)
        self.started.setdefault(item.kernel_id, now)
        runs = self._run_times[item.session_id]

        for kernel in place.kernels:
            running = Running(
                item.session_id,
                kernel.kernel_id,
                allocations=kernel.allocations,
                ends_at=None if item.time_limit is None else now + item.time_limit,
                started_at=now,
                priority=item.priority,
                user=item.user,
                project=item.project,
                endpoint_id=item.endpoint_id,
                preemptible=item.session_id not in self._not_preemptible,
            )
            self._run(kernel.agent_id, running, now, None if runs is None else now + runs)

    def _run(self, agent_id: AgentId, running: Running, now: int, end: int | None) -> None:
        self._running.setdefault(agent_id, {})[running.kernel_id] = running
        self._placed.setdefault(running.session_id, []).append((agent_id, running.kernel_id))
        self._changed_agents[agent_id] = None
        self._in_use += _amount(running.allocations, self._slot)
        self.usage[now] = self._in_use
        if end is not None:
            self._push(end, _Release(agent_id, running))

    def _update_agent(self, agent_id: AgentId) -> None:
        """Subtract the kernels on the agent from its capacity."""
        idle = self._idle_agents.get(agent_id)
        if idle is None:  # in another group, or removed before the recording began
            return

        running = tuple(self._running.get(agent_id, {}).values())
        free = dict(idle.free)
        free_devices = {device.device_id: device.free for device in idle.devices}
        for allocation in (allocation for kernel in running for allocation in kernel.allocations):
            device_id = allocation.device_id
            slot = allocation.slot
            amount = allocation.amount
            if device_id in free_devices:
                free_devices[device_id] = max(0, free_devices[device_id] - amount)
            elif slot in free:
                free[slot] = max(0, free[slot] - amount)

        devices = tuple(
            device
            if (rest := free_devices[device.device_id]) == device.free
            else replace(device, free=rest)
            for device in idle.devices
        )
        self._agents[agent_id] = replace(
            idle, free=free, devices=devices, running=running, kernels=len(running)
        )

    def _quotas_in_use(self) -> tuple[Quota, ...]:
        """The quotas with their usage in this simulation, and the recorded usage by other resource
        groups."""
        if not self._quotas:
            return ()

        running = [
            kernel
            for kernels in self._running.values()
            for kernel in kernels.values()
            if kernel.session_id not in self._requeued
        ]
        counted = []
        for quota in self._quotas:
            if quota.scope in ("qos", "qos-user"):
                continue  # a recording does not say which QoS a running kernel has

            kernels = running
            if quota.scope != "group":
                kernels = [
                    k
                    for k in running
                    if quota.name == (k.project if quota.scope == "project" else k.user)
                ]

            used = in_shares(quota.used_elsewhere)
            for allocation in (
                allocation for kernel in kernels for allocation in kernel.allocations
            ):
                slot = allocation.slot
                if allocation.device_id:
                    slot = slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX

                used[slot] = used.get(slot, 0) + allocation.amount

            sessions = len({kernel.session_id for kernel in kernels}) + quota.running_elsewhere
            counted.append(replace(quota, used=used, running=sessions))

        return tuple(counted)
