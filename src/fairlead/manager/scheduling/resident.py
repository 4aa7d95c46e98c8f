"""A planner that stays: it is told what changed, and looks only at what that may have changed.

It decides by the same code as ``plan``, with the same answer (a property of the tests). What it spares is
asking again on behalf of those that were refused for want of room: as long as no agent changed so that they
fit, they are refused again, whatever else happens. So of ten thousand that wait it looks at those that an
agent with new room could take, and at the first of the others, whose right to a reservation holds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from operator import attrgetter

from fairlead.common.ids import AgentId, SessionId
from fairlead.common.reasons import Reason
from fairlead.manager.scheduling import predicates
from fairlead.manager.scheduling.answer import Hold, Plan
from fairlead.manager.scheduling.choose import Bench
from fairlead.manager.scheduling.custom import Selector
from fairlead.manager.scheduling.forecast import Forecasts
from fairlead.manager.scheduling.memo import NoFit
from fairlead.manager.scheduling.model import AgentState, Pending, Quota, Snapshot
from fairlead.manager.scheduling.passes import Pass
from fairlead.manager.scheduling.plan import plan
from fairlead.manager.scheduling.policy import Policy
from fairlead.manager.scheduling.quotas import Quotas
from fairlead.manager.scheduling.shape import Shape

_by_rank = attrgetter("rank")
_Entry = tuple[tuple[int, int, str], int, "_Bucket"]


class _Bucket:
    """Sessions that ask for the same and run equally long, in order. ``at``: who is next in this pass."""

    __slots__ = ("at", "items", "number", "shape")

    def __init__(self, shape: Shape, number: int) -> None:
        self.shape, self.number, self.at = shape, number, 0
        self.items: list[Pending] = []

    def entry(self) -> _Entry:
        return self.items[self.at].rank, self.number, self


class _Fronts:
    """The line of one pass: of each bucket the next, unless it would be told what the one before was told."""

    def __init__(self, open_: list[_Bucket], blocked: list[_Bucket], bench: Bench, refused: NoFit) -> None:
        self._bench, self._refused = bench, refused
        self._open = [bucket.entry() for bucket in open_]
        self._blocked = [bucket.entry() for bucket in blocked]
        heapify(self._open)
        heapify(self._blocked)
        self._got_place = False
        self.made: Pass | None = None
        self.parked: list[tuple[_Bucket, Pending]] = []

    def placed(self, item: Pending) -> None:
        self._got_place = True

    def __iter__(self) -> Iterator[Pending]:
        made = self.made
        assert made is not None
        kept: list[_Bucket] = []  # those that the room that is kept was refused to
        while self._open or (self._blocked and not made.has_head):
            first = self._blocked and not made.has_head and (not self._open or self._blocked < self._open)
            rank, _, bucket = heappop(self._blocked if first else self._open)
            moves, self._got_place = made.kept_moves, False
            item = bucket.items[bucket.at]
            if not first and self._closed(bucket, item):
                heappush(self._blocked, bucket.entry())
                continue
            yield item
            bucket.at += 1
            again = self._got_place
            if not again:
                hold = made.holds[-1]
                if hold.unmet:
                    self.parked.append((bucket, item))
                    again = True
                elif hold.reason is Reason.RESERVED:
                    kept.append(bucket)
            if again and bucket.at < len(bucket.items):
                heappush(self._blocked if first else self._open, bucket.entry())
            if made.kept_moves != moves:
                self._ask_again(kept, rank)

    def _closed(self, bucket: _Bucket, item: Pending) -> bool:
        """Whether others of its shape were refused already, or the room that had come back has gone."""
        known = self._refused.blocks(bucket.shape)
        if known is not None and not known.but_on:
            return known.capacity
        hot = self._refused.hot(bucket.shape)
        if hot is None or any(room.fits(self._bench.demand(bucket.shape.total)) for room in hot):
            return False
        self._refused.again(item)
        return True

    def _ask_again(self, kept: list[_Bucket], rank: tuple[int, int, str]) -> None:
        for bucket in kept:
            bucket.at = max(bucket.at, bisect_left(bucket.items, rank, key=_by_rank))
            if bucket.at < len(bucket.items):
                heappush(self._open, bucket.entry())
        kept.clear()


class Planner:
    """One resource group under one policy. Tell it what changed, then let it decide.

    Its plan tells of the sessions that were looked at; who is not in it waits as before, and who is refused
    as before may be told the numbers of then. It changes nothing by deciding: what becomes of a place (an
    agent with less room, a session that no longer waits) is told.

    Sessions that wait for more than room, clusters and replicas, and policies other than first come first
    served with backfill, are planned in full each time.
    """

    def __init__(self, group: str, policy: Policy, selectors: Mapping[str, Selector] | None = None) -> None:
        self._group, self._policy, self._selectors = group, policy, selectors
        self._agents: dict[AgentId, AgentState] = {}
        self._pending: dict[SessionId, Pending] = {}
        self._quotas: dict[tuple[str, str], Quota] = {}
        self._cursors: Mapping[str, AgentId] = {}
        self._usage: Mapping[str, Mapping[str, int]] | None = None
        self._others: set[SessionId] = set()  # those that are planned in full
        self._buckets: dict[tuple[Shape, int | None], _Bucket] = {}
        self._parked: dict[SessionId, Pending] = {}
        self._changed: set[AgentId] = set()
        self._new: set[SessionId] = set()
        self._bench: Bench | None = None
        self._ledger = Quotas(group, ())
        self._simple = (policy.strategy, policy.hol) == ("fifo", "backfill") and policy.preemption is None
        self._simple &= policy.agent_selection in ("concentrated", "dispersed")
        self._simple &= policy.session_types is None and not policy.exclusive

    def tell_agents(self, changed: Iterable[AgentState], gone: Iterable[AgentId] = ()) -> None:
        """``changed``: they are new, or otherwise than they were told last."""
        for agent in changed:
            known = self._agents.get(agent.agent_id)
            self._agents[agent.agent_id] = agent
            self._changed.add(agent.agent_id)
            if known is None or not _alike(known, agent):
                self._bench = None
        for agent_id in gone:
            if self._agents.pop(agent_id, None) is not None:
                self._bench = None

    def tell_sessions(self, waiting: Iterable[Pending], gone: Iterable[SessionId] = ()) -> None:
        """``waiting``: they are new, or otherwise; ``gone``: they wait no longer."""
        for item in waiting:
            self._forget(item.session_id)
            self._pending[item.session_id] = item
            self._new.add(item.session_id)
            if item.plain and item.shape.alone and not item.endpoint_id:
                self._queue(item)
            else:
                self._others.add(item.session_id)
        for session_id in gone:
            self._forget(session_id)

    def tell_quotas(self, changed: Iterable[Quota]) -> None:
        changed = list(changed)
        self._quotas |= {(quota.scope, quota.name): quota for quota in changed}
        self._ledger.update(changed)
        names = {quota.name for quota in changed}
        for item in list(self._parked.values()):
            if self._group in names or item.user in names or item.project in names:
                del self._parked[item.session_id]
                self._queue(item)

    def tell_rest(
        self, cursors: Mapping[str, AgentId], usage: Mapping[str, Mapping[str, int]] | None
    ) -> None:
        """Round robin's cursors and drf's usage, as in ``Snapshot``."""
        self._cursors, self._usage = cursors, usage

    @property
    def waiting(self) -> Collection[SessionId]:
        return self._pending.keys()

    def snapshot(self) -> Snapshot:
        """All that it was told."""
        agents, pending = tuple(self._agents.values()), tuple(self._pending.values())
        quotas = tuple(self._quotas.values())
        return Snapshot(self._group, agents, pending, quotas, self._cursors, self._usage)

    def decide(self, now: int) -> Plan:
        """``now``: unix microseconds, not before that of the last time."""
        if self._others or not self._simple:
            self._new.clear()
            return plan(self.snapshot(), self._policy, now, self._selectors)
        bench = self._current()
        fronts = _Fronts(*self._sorted_out(), bench, self._refused)
        made = fronts.made = Pass(self._policy, now, bench, self._ledger, self._refused, self._forecasts)
        made.answer_all(fronts)
        self._tell_the_new(made)
        self._put_back(bench, made, fronts)
        return made.plan()

    def _current(self) -> Bench:
        bench = self._bench
        if bench is None or bench.grained:
            bench = self._bench = Bench(self._agents.values(), self._policy)
            self._refused, self._forecasts = NoFit(bench.grained), Forecasts(self._policy.fraction)
            self._rank_of = {room.agent.agent_id: room.rank for room in bench.rooms}
        else:
            rooms = [bench.rooms[self._rank_of[agent_id]] for agent_id in self._changed]
            for room in rooms:
                bench.reset(room, self._agents[room.agent.agent_id])
            self._refused.forget(rooms, bench)
            self._forecasts.changed(room.rank for room in rooms)
        self._changed.clear()
        return bench

    def _sorted_out(self) -> tuple[list[_Bucket], list[_Bucket]]:
        """Those that may get something, and those of which the first may be the blocked head."""
        open_, blocked = [], []
        for bucket in self._buckets.values():
            bucket.at = 0
            answer = self._refused.blocks(bucket.shape)
            if answer is None or answer.but_on:
                open_.append(bucket)
            elif answer.capacity:
                blocked.append(bucket)
        return open_, blocked

    def _tell_the_new(self, made: Pass) -> None:
        """Who came since the last time and was not looked at is told what those of its shape were told."""
        looked_at = {hold.session_id for hold in made.holds} | {place.session_id for place in made.places}
        for session_id in self._new - looked_at:
            item = self._pending[session_id]
            answer = self._refused.blocks(item.shape)
            unmet = predicates.check(item, self._policy, self._ledger, made.now)
            if unmet:
                made.holds.append(predicates.hold(item, unmet))
            elif answer is not None and answer.but_on:
                behind = next((guard.session_id for guard in made.guards), None)
                made.holds.append(Hold(session_id, Reason.RESERVED, answer.refusals, True, False, behind))
            elif answer is not None:
                made.holds.append(Hold(session_id, answer.reason, answer.refusals, True, answer.capacity))
        self._new.clear()

    def _put_back(self, bench: Bench, made: Pass, fronts: _Fronts) -> None:
        for guard in made.guards:
            if guard.room.guarded:
                bench.put_back(guard.room)
        # What they give away is told when it is given; until then they are as before.
        self._changed |= {room.agent.agent_id for room in bench.booked}
        bench.booked.clear()
        self._ledger.undo()
        for bucket, item in fronts.parked:
            # Not those that would exceed a quota only if all places of this plan are taken.
            if self._ledger.check(item):
                self._take_out(bucket, item)
                self._parked[item.session_id] = item

    def _queue(self, item: Pending) -> None:
        name = (item.shape, item.runs_for)
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(item.shape, len(self._buckets))
        insort(bucket.items, item, key=_by_rank)

    def _forget(self, session_id: SessionId) -> None:
        item = self._pending.pop(session_id, None)
        self._new.discard(session_id)
        if item is None or self._parked.pop(session_id, None) is not None:
            return
        if session_id in self._others:
            self._others.remove(session_id)
        else:
            self._take_out(self._buckets[item.shape, item.runs_for], item)

    def _take_out(self, bucket: _Bucket, item: Pending) -> None:
        del bucket.items[bisect_left(bucket.items, item.rank, key=_by_rank)]
        if not bucket.items:
            self._buckets = {name: known for name, known in self._buckets.items() if known is not bucket}


def _alike(old: AgentState, new: AgentState) -> bool:
    """Whether only what is free, or runs, or is ill differs."""
    return (
        old.totals.capacity == new.totals.capacity
        and old.runtimes == new.runtimes
        and old.engines == new.engines
        and old.takes_work == new.takes_work
        and (old.arch, old.labels, old.max_kernels) == (new.arch, new.labels, new.max_kernels)
        and old.totals.families == new.totals.families
    )
