"""A planner that stays: it is told what changed, and looks only at what that may have changed.

It decides by the same code as ``plan``, with the same answer (a property of the tests). What it spares is
asking again on behalf of those that were refused for want of room: as long as no agent changed so that they
fit, they are refused again, whatever else happens. So of ten thousand that wait it looks at those that an
agent with new room could take, and at the first of the others, whose right to a reservation holds. Those
whose owner has no quota left are set aside until the quota is another, or used otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.backfill.earliest_fit_index import Forecasts
from moorage.manager.scheduling.core import predicates
from moorage.manager.scheduling.core.model import AgentState, Pending, Quota, Snapshot
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import Quotas
from moorage.manager.scheduling.core.results import HoldDetails, Plan
from moorage.manager.scheduling.core.shape import OwnedShape, Shape
from moorage.manager.scheduling.incremental.pending_index import Bucket, Cursor, Queue, Rank, Row
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.selector_plugin import Selector
from moorage.manager.scheduling.planning.plan import plan
from moorage.manager.scheduling.planning.refusal_cache import RefusalCache
from moorage.manager.scheduling.planning.scheduling_pass import SchedulingPass

_Entry = tuple[Rank, Row]


class _Fronts:
    """The line of one pass: of each row the next, unless it would be told what the one before was told.
    ``opened``: the shapes of those that may get something; of the others the first may be the head."""

    def __init__(
        self, queue: Queue, opened: Collection[Shape], bench: NodePool, refused: RefusalCache
    ) -> None:
        self._queue, self._opened, self._bench, self._refused = queue, opened, bench, refused
        self._live = set(opened)  # those that may still get something
        rows = [row for shape in opened for row in queue.rows_of[shape]]
        self._open: list[_Entry] = [(row.front, row) for row in rows if row.front is not None]
        heapify(self._open)
        self._blocked: list[_Entry] = []
        self._cursors: dict[Row, Cursor] = {}
        self._at = 0  # how far in the queue's line
        self._got_place = False
        self.made: SchedulingPass | None = None
        # Those whose owners have no quota left, from the first on who was refused for that.
        self.over: list[tuple[Bucket, list[Pending]]] = []

    def placed(self, item: Pending) -> None:
        self._got_place = True

    def __iter__(self) -> Iterator[Pending]:
        made = self.made
        assert made is not None
        kept: list[Cursor] = []  # those that the room that is kept was refused to
        while True:
            if not made.has_head:
                self._find_blocked()
            elif not self._live:
                return
            blocked = self._blocked if not made.has_head else ()
            if not self._open and not blocked:
                return
            heap = self._blocked if blocked and (not self._open or blocked[0] < self._open[0]) else self._open
            rank, row = heappop(heap)
            if heap is self._open and row.shape not in self._live:
                answer = self._refused.blocks(row.shape)
                if answer is None or answer.capacity:
                    heappush(self._blocked, (rank, row))
                    continue
            cursor = self._cursors.get(row)
            if cursor is None:
                cursor = self._cursors[row] = Cursor(row)
            moves, self._got_place = made.kept_moves, False
            yield cursor.item
            if self._got_place:
                cursor.advance()
                self._push(heap, cursor)
                self._close()
            elif self._goes_on(made.holds.details[-1], cursor, heap):
                kept.append(cursor)
            if made.kept_moves != moves:
                for cursor in kept:
                    cursor.skip_to(rank)
                    self._push(self._open, cursor)
                kept = []

    def _goes_on(self, body: HoldDetails, cursor: Cursor, heap: list[_Entry]) -> bool:
        """It was refused by ``body``. Whether more of its row may have what is kept for others."""
        if body[-1]:
            self.over.append(cursor.drop())
            self._push(heap, cursor)
            return False
        cursor.bucket.told = None
        cursor.advance()
        known = self._refused.blocks(cursor.row.shape)
        if known is not None and not known.but_on:
            self._live.discard(cursor.row.shape)
        return body[0] is Reason.RESERVED

    def _push(self, heap: list[_Entry], cursor: Cursor) -> None:
        if cursor:
            heappush(heap, (cursor.rank, cursor.row))

    def _find_blocked(self) -> None:
        """Have the first of the blocked in the heap."""
        line, heap = self._queue.line, self._blocked
        while self._at < len(line) and not (heap and heap[0][0] < line[self._at][0]):
            row = line[self._at][1]
            self._at += 1
            if row.shape not in self._opened:
                answer = self._refused.blocks(row.shape)
                if answer is not None and answer.capacity:
                    heappush(heap, (line[self._at - 1][0], row))

    def _close(self) -> None:
        """The room that had come back may have gone: then they are refused as before."""
        for shape in list(self._live):
            hot = self._refused.hot(shape)
            if hot is not None:
                demand = self._bench.want(shape).demand
                for room in hot:
                    if room.fits(demand):
                        break
                else:
                    self._refused.again(shape)
                    self._live.discard(shape)


class IncrementalPlanner:
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
        self._queue = Queue()
        self._open: set[Shape] = set()  # who may get something; the others would be refused as before
        self._changed: set[AgentId] = set()
        self._new: set[SessionId] = set()
        self._bench: NodePool | None = None
        self._ledger = Quotas(group, ())
        self._simple = (policy.strategy, policy.hol) == ("fifo", "backfill") and policy.preemption is None
        self._simple &= policy.agent_selection in ("concentrated", "dispersed")
        self._simple &= policy.session_types is None and not policy.exclusive

    def update_agents(self, changed: Iterable[AgentState], gone: Iterable[AgentId] = ()) -> None:
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

    def update_sessions(self, waiting: Iterable[Pending], gone: Iterable[SessionId] = ()) -> None:
        """``waiting``: they are new, or otherwise; ``gone``: they wait no longer."""
        waiting = list(waiting)
        # First those that go, all of them: to take one out of a row to which others were added sorts it anew.
        for item in waiting:
            if item.session_id in self._pending:
                self._forget(item.session_id)
        for session_id in gone:
            self._forget(session_id)
        for item in waiting:
            self._pending[item.session_id] = item
            self._new.add(item.session_id)
            if item.fast_path:
                if self._queue.add(item):
                    self._open.add(item.shape)
            else:
                self._others.add(item.session_id)

    def update_quotas(self, changed: Iterable[Quota]) -> None:
        changed = list(changed)
        self._quotas |= {(quota.scope, quota.name): quota for quota in changed}
        self._ledger.update(changed)
        for quota in changed:
            for bucket in self._queue.parked_by(quota.scope, quota.name):
                self._queue.unpark(bucket)

    def update_cursors_and_usage(
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
        self._queue.settle()
        opened = self._opened()
        fronts = _Fronts(self._queue, opened, bench, self._refused)
        made = fronts.made = SchedulingPass(
            self._policy, now, bench, self._ledger, self._refused, self._forecasts
        )
        made.answer_all(fronts)
        self._open = opened
        if self._new or fronts.over:
            self._tell_the_others(made, fronts.over)
        self._put_back(bench, made, fronts.over)
        return made.plan()

    def _current(self) -> NodePool:
        bench = self._bench
        if bench is None or bench.grained:
            bench = self._bench = NodePool(self._agents.values(), self._policy)
            self._refused = RefusalCache(bench.grained)
            self._forecasts = Forecasts(self._policy.fraction, bench.rooms)
            self._rank_of = {room.agent.agent_id: room.rank for room in bench.rooms}
            self._open = set(self._queue.rows_of)
        else:
            rooms = [bench.rooms[self._rank_of[agent_id]] for agent_id in self._changed]
            for room in rooms:
                bench.reset(room, self._agents[room.agent.agent_id])
            self._open.update(self._refused.forget(rooms, bench))
            self._forecasts.changed(room.rank for room in rooms)
        self._changed.clear()
        return bench

    def _opened(self) -> set[Shape]:
        """Those of whom somebody waits, and who were not refused for good."""
        found = set()
        for shape in self._open & self._queue.rows_of.keys():
            answer = self._refused.blocks(shape)
            if answer is None or answer.but_on:
                found.add(shape)
        return found

    def _tell_the_others(self, made: SchedulingPass, over: Iterable[tuple[Bucket, list[Pending]]]) -> None:
        """Who was not looked at is told how it is after the pass: who came since the last time, what those of
        its shape were told; and who is like one that has no quota left, that."""
        looked_at = set(made.holds.ids).union([place.session_id for place in made.places])
        bodies: dict[OwnedShape, HoldDetails | None] = {}
        for bucket, (item, *others) in over:
            body = bodies[item.owned_shape] = self._body(made, item)
            if body is not None and body != bucket.told:
                names = [one.session_id for one in others if one.session_id not in looked_at]
                made.holds.ids += names
                made.holds.details += [body] * len(names)
                looked_at.update(names)
                bucket.told = body
        for session_id in self._new - looked_at:
            item = self._pending[session_id]
            if item.owned_shape not in bodies:
                bodies[item.owned_shape] = self._body(made, item)
            body = bodies[item.owned_shape]
            if body is not None:
                made.holds.add(session_id, body)
        self._new.clear()

    def _body(self, made: SchedulingPass, item: Pending) -> HoldDetails | None:
        unmet = self._ledger.check(item)
        if unmet:
            return predicates.told(unmet)
        answer = self._refused.blocks(item.shape)
        if answer is None or not answer.but_on:
            return None if answer is None else answer.body
        behind = next((guard.session_id for guard in made.guards), None)
        return Reason.RESERVED, answer.refusals, True, False, behind, ()

    def _put_back(
        self, bench: NodePool, made: SchedulingPass, over: Iterable[tuple[Bucket, list[Pending]]]
    ) -> None:
        for guard in made.guards:
            if guard.room.guarded:
                bench.put_back(guard.room)
        # What they give away is told when it is given; until then they are as before.
        self._changed |= {room.agent.agent_id for room in bench.booked}
        bench.booked.clear()
        self._ledger.undo()
        for bucket, _ in over:
            # Not those that would exceed a quota only if all places of this plan are taken.
            if self._ledger.check(bucket.items[0]):
                self._queue.park(bucket)

    def _forget(self, session_id: SessionId) -> None:
        item = self._pending.pop(session_id, None)
        self._new.discard(session_id)
        if item is None:
            return
        if session_id in self._others:
            self._others.remove(session_id)
        else:
            self._queue.remove(item)


def _alike(old: AgentState, new: AgentState) -> bool:
    """Whether only what is free, or runs, or is ill differs."""
    return (
        old.packed.capacity == new.packed.capacity
        and old.runtimes == new.runtimes
        and old.engines == new.engines
        and old.schedulable == new.schedulable
        and (old.arch, old.labels, old.max_kernels) == (new.arch, new.labels, new.max_kernels)
        and old.packed.families == new.packed.families
    )
