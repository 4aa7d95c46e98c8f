"""What was recorded, played again in virtual time under the same policy or another, and as it really was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from typing import Any

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.manager.scheduling import AgentState, Pending, Place, Policy, Snapshot
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache
from moorage.manager.scheduling.placement.selector_plugin import Selector
from moorage.simulator.scheduler.recording import Arrival, Fixed, Recorded
from moorage.simulator.scheduler.simulation import Extent, Outcome, Played
from moorage.simulator.scheduler.traces import Job


def play(
    recorded: Recorded, policy: Policy | None, selectors: Mapping[str, Selector] | None = None
) -> Played:
    """Every session from its arrival to its end, or to the end of the span; ``policy`` None: as recorded.

    There is one pass at each moment at which something arrives, ends or changes; starting takes no time, and
    nobody is stopped for others.
    """
    world = _World(recorded, policy, selectors)
    while world.events and world.events[0][0] <= recorded.end:
        now = world.events[0][0]
        while world.events and world.events[0][0] == now:
            world.happen(heappop(world.events))
        if world.pending:
            world.decide(now)
    outcomes = tuple(_outcome(a, recorded, world.started.get(a.item.kernel_id)) for a in recorded.arrivals)
    return Played(_extent(recorded), outcomes, tuple(sorted(world.busy.items())), world.passes)


def as_it_was(recorded: Recorded) -> Played:
    """The waits and the use that were observed."""
    slot, changes = recorded.slot, dict[int, int]()
    for fixed in recorded.fixed:
        _mark(changes, fixed.begin, fixed.end, _amount(fixed.running.allocations, slot))
    for arrival in recorded.arrivals:
        if arrival.started is not None:
            end = None if arrival.runs is None else arrival.started + arrival.runs
            _mark(changes, max(recorded.begin, arrival.started), end, arrival.item.shape.amounts.get(slot, 0))
    used, busy = 0, []
    for at in sorted(changes):
        used += changes[at]
        busy.append((at, used))
    outcomes = tuple(_outcome(arrival, recorded, arrival.started) for arrival in recorded.arrivals)
    return Played(_extent(recorded), outcomes, tuple(busy), 0)


def _mark(changes: dict[int, int], begin: int, end: int | None, amount: int) -> None:
    changes[begin] = changes.get(begin, 0) + amount
    if end is not None:
        changes[max(begin, end)] = changes.get(max(begin, end), 0) - amount


def _outcome(arrival: Arrival, recorded: Recorded, started: int | None) -> Outcome:
    item = arrival.item
    runs = arrival.runs
    if runs is None:  # as far as anybody can see
        runs = max(1, recorded.end - (arrival.at if started is None else started))
    amount = item.shape.amounts.get(recorded.slot, 0)
    return Outcome(
        Job(item.session_id, arrival.at, amount, runs, item.user, item.time_limit, item.priority), started
    )


def _extent(recorded: Recorded) -> Extent:
    """What there was on average, and the most that one agent had."""
    slot, total, most, since = recorded.slot, 0, 0, recorded.begin
    level: dict[AgentId, int] = {}
    for at, agent in (*recorded.floor, (recorded.end, None)):
        total += sum(level.values()) * (at - since)
        since = at
        if agent is not None:
            level[agent.agent_id] = agent.packed.capacity.get(slot, 0) if agent.available else 0
            most = max(most, level[agent.agent_id])
    span = recorded.end - recorded.begin
    return Extent(round(total / span) if span else sum(level.values()), most or 1)


def _amount(takes: tuple[Allocation, ...], slot: str) -> int:
    """Of one slot, as it is asked for: devices of a family in 1/1000."""
    family = slot.removesuffix(SHARES_SUFFIX) + DEVICE_SUFFIX if slot.endswith(SHARES_SUFFIX) else slot
    return sum(take.amount for take in takes if take.slot == family)


@dataclass(frozen=True, slots=True)
class _End:
    agent_id: AgentId
    running: Running


class _World:
    def __init__(
        self, recorded: Recorded, policy: Policy | None, selectors: Mapping[str, Selector] | None
    ) -> None:
        self._group, self._slot, self._selectors = recorded.group, recorded.slot, selectors
        self._planners, self._number = PlannerCache(), count()
        self._policy = replace(policy or recorded.policies[0][1], preemption=None)
        self._quotas: tuple[Quota, ...] = ()
        self._empty: dict[AgentId, AgentState] = {}
        self._agents: dict[AgentId, AgentState] = {}
        self._on: dict[AgentId, dict[KernelId, Running]] = {}
        self._cursors = dict(recorded.cursors)
        self._runs: dict[KernelId, int | None] = {}
        self._used = 0
        self.pending: dict[SessionId, Pending] = {}
        self.started: dict[KernelId, int] = {}
        self.busy: dict[int, int] = {}
        self.passes = 0
        self.events: list[tuple[int, int, Any]] = []
        for at, agent in recorded.floor:
            self._expect(at, agent)
        for at, quotas in recorded.quotas:
            self._expect(at, quotas)
        if policy is None:
            for at, each in recorded.policies:
                self._expect(at, each)
        for fixed in recorded.fixed:
            self._expect(fixed.begin, fixed)
        for arrival in recorded.arrivals:
            self._expect(max(recorded.begin, arrival.at), arrival)

    def _expect(self, at: int, what: Any) -> None:
        """Of what happens at one moment all is there before it is planned: its order is of no importance."""
        heappush(self.events, (at, next(self._number), what))

    def happen(self, event: tuple[int, int, Any]) -> None:
        at, _, what = event
        if isinstance(what, Arrival):
            self.pending[what.item.session_id] = what.item
            self._runs[what.item.kernel_id] = what.runs
        elif isinstance(what, Fixed):
            self._put(what.agent_id, what.running, at)
            if what.end is not None:
                self._expect(max(at, what.end), _End(what.agent_id, what.running))
        elif isinstance(what, AgentState):
            self._empty[what.agent_id] = what
            self._change(what.agent_id)
        elif isinstance(what, Policy):
            self._policy = replace(what, preemption=None)
        elif isinstance(what, _End):
            agent_id, running = what.agent_id, what.running
            del self._on[agent_id][running.kernel_id]
            self._change(agent_id)
            self._used -= _amount(running.allocations, self._slot)
            self.busy[at] = self._used
        else:
            self._quotas = what

    def decide(self, now: int) -> None:
        self.passes += 1
        policy, quotas = self._policy, self._counted()
        snapshot = Snapshot(
            self._group, tuple(self._agents.values()), tuple(self.pending.values()), quotas, self._cursors
        )
        made = self._planners.plan(snapshot, policy, now, self._selectors)
        self._cursors |= made.cursors
        enough = max(1, policy.num_retries_to_skip)
        for hold in made.holds:
            if hold.capacity and (item := self.pending[hold.session_id]).retries < enough:
                self.pending[hold.session_id] = replace(item, retries=item.retries + 1)
        for session_id, bypassed in made.bypasses.items():
            self.pending[session_id] = replace(self.pending[session_id], bypassed=bypassed)
        for place in made.places:
            self._start(place, now)

    def _start(self, place: Place, now: int) -> None:
        item = self.pending.pop(place.session_id)
        self.started[item.kernel_id] = now
        runs = self._runs[item.kernel_id]
        for kernel in place.kernels:
            running = Running(
                item.session_id,
                kernel.kernel_id,
                kernel.allocations,
                None if item.time_limit is None else now + item.time_limit,
                now,
                item.priority,
                item.user,
                item.project,
                item.endpoint_id,
            )
            self._put(kernel.agent_id, running, now)
            if runs is not None:
                self._expect(now + runs, _End(kernel.agent_id, running))

    def _put(self, agent_id: AgentId, running: Running, now: int) -> None:
        self._on.setdefault(agent_id, {})[running.kernel_id] = running
        self._change(agent_id)
        self._used += _amount(running.allocations, self._slot)
        self.busy[now] = self._used

    def _change(self, agent_id: AgentId) -> None:
        """The agent as it is now, with what runs on it."""
        bare = self._empty.get(agent_id)
        if bare is None:  # of another group, or it was gone when the span began
            return
        running = tuple(self._on.get(agent_id, {}).values())
        free, devices = dict(bare.free), {device.device_id: device.free for device in bare.devices}
        for take in (take for kernel in running for take in kernel.allocations):
            if take.device_id in devices:
                devices[take.device_id] = max(0, devices[take.device_id] - take.amount)
            elif take.slot in free:
                free[take.slot] = max(0, free[take.slot] - take.amount)
        left = tuple(
            device if (now := devices[device.device_id]) == device.free else replace(device, free=now)
            for device in bare.devices
        )
        self._agents[agent_id] = replace(bare, free=free, devices=left, running=running, kernels=len(running))

    def _counted(self) -> tuple[Quota, ...]:
        """The quotas with what is used of them here; what other resource groups use is not known."""
        if not self._quotas:
            return ()
        live = [kernel for kernels in self._on.values() for kernel in kernels.values()]
        found = []
        for quota in self._quotas:
            mine = [k for k in live if quota.name == {"user": k.user, "project": k.project}.get(quota.scope)]
            mine = live if quota.scope == "group" else mine
            used: dict[str, int] = {}
            for take in (take for kernel in mine for take in kernel.allocations):
                slot = take.slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX if take.device_id else take.slot
                used[slot] = used.get(slot, 0) + take.amount
            sessions = len({kernel.session_id for kernel in mine})
            found.append(replace(quota, used=used, running=sessions))
        return tuple(found)
