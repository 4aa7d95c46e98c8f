"""Incremental planner: receives changes, and examines only the sessions that they may affect.

Its plans equal those of ``plan`` (``tests/model/test_planner.py`` compares every step of random
histories). It does not reexamine sessions that were refused for lack of capacity: they stay refused
until they fit on an agent that has changed. Of ten thousand pending sessions, it examines only
those that could run on an agent with new capacity, and the first of the others, which is entitled
to a reservation.

Invariants between passes:

* The node pool holds the agents as they were last reported: reservations and allocations of a pass
  are undone when it ends, and agents on which it allocated count as changed.
* Each shape of the index is refused in the refusal cache, or in ``_open``.
* A parked owner queue exceeds a quota, with nothing charged. A change of any quota that applies
  unparks it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.backfill.earliest_fit_index import EarliestFits
from moorage.manager.scheduling.core import start_conditions
from moorage.manager.scheduling.core.model import AgentState, Pending, Quota, Snapshot
from moorage.manager.scheduling.core.order import is_overdue, overdue_key
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import Quotas
from moorage.manager.scheduling.core.results import HoldDetails, Plan
from moorage.manager.scheduling.core.shape import OwnedShape, Shape
from moorage.manager.scheduling.incremental.changed_queue import ChangedQueue
from moorage.manager.scheduling.incremental.pending_index import OwnerQueue, PendingIndex, QueueKey
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.selector_plugin import Selector
from moorage.manager.scheduling.planning.plan import plan
from moorage.manager.scheduling.planning.refusal_cache import RefusalCache
from moorage.manager.scheduling.planning.scheduling_pass import SchedulingPass

# Number of entries that ``IncrementalPlanner`` keeps for sessions that are no longer pending.
_MIN_DUE = 1_000


class IncrementalPlanner:
    """Planner of one resource group under one policy.

    Report changes with the ``update_`` methods, then call ``plan``. A plan lists the examined
    sessions. A session that it omits waits as before; a session that is refused again may get the
    numbers of an earlier pass. Planning does not change the reported state: the effects of a
    placement (an agent with less capacity, a session that is no longer pending) must be reported as
    well.

    Sessions with their own constraints and clusters are examined individually in each pass.
    Policies other than fifo with backfill are planned from scratch each time (``is_incremental`` is
    false).
    """

    def __init__(
        self, group: str, policy: Policy, selectors: Mapping[str, Selector] | None = None
    ) -> None:
        self._group = group
        self._policy = policy
        self._selectors = selectors
        self._agents: dict[AgentId, AgentState] = {}
        self._pending: dict[SessionId, Pending] = {}
        self._quotas: dict[tuple[str, str], Quota] = {}
        self._cursors: Mapping[str, AgentId] = {}
        self._usage: Mapping[str, Mapping[str, int]] | None = None
        self._index = PendingIndex()
        self._individual: set[SessionId] = set()  # sessions that each pass examines
        self._open: set[Shape] = set()  # shapes that may be placed; all others stay refused
        self._changed: set[AgentId] = set()
        self._new: set[SessionId] = set()
        self._now = 0  # of the last plan
        self._overdue: set[SessionId] = set()  # sessions that the index holds as overdue

        # a heap: times at which each of the others becomes overdue by age
        self._due: list[tuple[int, SessionId]] = []
        self._pool: NodePool | None = None  # None if too many agents changed to keep it
        self._balances = Quotas(group, ())
        self.is_incremental = (
            (policy.strategy, policy.hol) == ("fifo", "backfill")
            and policy.preemption is None
            and policy.agent_selection in ("concentrated", "dispersed")
            and policy.session_types is None
            and not policy.exclusive
        )

    def update_agents(self, changed: Iterable[AgentState], gone: Iterable[AgentId] = ()) -> None:
        """Update agents. ``changed``: new agents, and those that differ from their last report."""
        for agent in changed:
            known = self._agents.get(agent.agent_id)
            self._agents[agent.agent_id] = agent
            self._changed.add(agent.agent_id)
            if known is None or not _same_node(known, agent):
                self._pool = None

        for agent_id in gone:
            if self._agents.pop(agent_id, None) is not None:
                self._pool = None

    def update_sessions(self, pending: Iterable[Pending], gone: Iterable[SessionId] = ()) -> None:
        """Update sessions. ``pending``: new and changed sessions. ``gone``: sessions that are no
        longer pending."""
        pending = list(pending)

        # All removals come first: removing from an owner queue after additions to it would sort it
        # each time.
        for item in pending:
            if item.session_id in self._pending:
                self._forget(item.session_id)
        for session_id in gone:
            self._forget(session_id)

        for item in pending:
            self._pending[item.session_id] = item
            self._new.add(item.session_id)
            if _is_indexed(item):
                self._add_to_index(item, is_overdue(item, self._policy, self._now))
            elif item.dependencies == "met" and not item.earlier_agents:
                self._individual.add(item.session_id)
            # The others cannot start until they change: they get a hold, and are not examined
            # again.

    def update_quotas(self, changed: Iterable[Quota]) -> None:
        changed = list(changed)
        self._quotas |= {(quota.scope, quota.name): quota for quota in changed}
        self._balances.update(changed)
        for quota in changed:
            for owner in self._index.parked_by(quota.scope, quota.name):
                self._index.unpark(owner)

    def update_cursors_and_usage(
        self, cursors: Mapping[str, AgentId], usage: Mapping[str, Mapping[str, int]] | None
    ) -> None:
        """See ``Snapshot``."""
        self._cursors = cursors
        self._usage = usage

    @property
    def pending(self) -> Collection[SessionId]:
        return self._pending.keys()

    def snapshot(self) -> Snapshot:
        """Snapshot of the reported state."""
        agents = tuple(self._agents.values())
        pending = tuple(self._pending.values())
        quotas = tuple(self._quotas.values())

        return Snapshot(
            self._group,
            agents,
            pending=pending,
            quotas=quotas,
            cursors=self._cursors,
            usage=self._usage,
        )

    def plan(self, now: int) -> Plan:
        """Plan a pass. ``now``: Unix microseconds, no earlier than in the last call."""
        self._now = now
        self._move_overdue(now)
        if not self.is_incremental:
            self._new.clear()
            return plan(self.snapshot(), self._policy, now, self._selectors)

        pool = self._update_pool()
        self._index.sort_added()
        opened = self._opened_shapes()
        scheduling_pass = SchedulingPass(
            self._policy,
            now,
            pool=pool,
            quotas=self._balances,
            refusals=self._refusals,
            earliest_fits=self._earliest_fits,
        )
        queue = ChangedQueue(
            self._index,
            opened,
            individual=self._sort_individual(),
            pool=pool,
            refusals=self._refusals,
            scheduling_pass=scheduling_pass,
        )
        scheduling_pass.run(queue)
        self._open = opened
        if self._new or queue.over_quota:
            self._hold_unexamined(scheduling_pass, queue.over_quota)

        self._undo(pool, scheduling_pass, queue.over_quota)
        return scheduling_pass.plan()

    def _update_pool(self) -> NodePool:
        """Update the node pool, refusal cache and earliest fits for the changed agents; recreate
        them if necessary."""
        pool = self._pool

        # Whether a fraction fits there depends on individual devices, which the refusal cache does
        # not track.
        if pool is None or pool.quantized:
            pool = NodePool(self._agents.values(), self._policy)
            self._pool = pool
            self._refusals = RefusalCache(pool.quantized)
            self._earliest_fits = EarliestFits(self._policy.fraction, pool.nodes)
            self._rank_of = {node.agent.agent_id: node.rank for node in pool.nodes}
            self._open = set(self._index.queues_of)
        else:
            nodes = [pool.nodes[self._rank_of[agent_id]] for agent_id in self._changed]
            for node in nodes:
                pool.reset(node, self._agents[node.agent.agent_id])

            self._open.update(self._refusals.invalidate(nodes, pool))
            self._earliest_fits.update(node.rank for node in nodes)

        self._changed.clear()
        return pool

    def _sort_individual(self) -> list[tuple[QueueKey, Pending]]:
        """In the order of the queue."""
        items = [self._pending[name] for name in self._individual]
        return sorted(
            (
                overdue_key(item) if is_overdue(item, self._policy, self._now) else item.queue_key,
                item,
            )
            for item in items
        )

    def _opened_shapes(self) -> set[Shape]:
        """The shapes with pending sessions that may be placed in this pass."""
        opened = set()
        for shape in self._open & self._index.queues_of.keys():
            refusal = self._refusals.get(shape)
            if refusal is None or refusal.unchecked:
                opened.add(shape)
        return opened

    def _hold_unexamined(
        self,
        scheduling_pass: SchedulingPass,
        over_quota: Iterable[tuple[OwnerQueue, list[Pending]]],
    ) -> None:
        """Add holds for new sessions and for sessions over quota that the pass has skipped.

        After the pass, they get the hold of their equivalence class, or the one for the condition
        that they wait for.
        """
        holds = scheduling_pass.holds
        places = scheduling_pass.places
        examined = set(holds.ids).union([place.session_id for place in places])
        details_of: dict[OwnedShape | SessionId, HoldDetails | None] = {}
        for owner, (item, *rest) in over_quota:
            details = details_of[item.owned_shape] = self._current_hold(scheduling_pass, item)
            if details is not None and details != owner.last_hold:
                skipped = [other.session_id for other in rest if other.session_id not in examined]
                holds.add_all(skipped, details)
                examined.update(skipped)
                owner.last_hold = details

        for session_id in self._new - examined:
            item = self._pending[session_id]
            name = item.equivalence_class or session_id
            if name not in details_of:
                details_of[name] = self._current_hold(scheduling_pass, item)

            details = details_of[name]
            if details is not None:
                holds.add(session_id, details)

        self._new.clear()

    def _current_hold(self, scheduling_pass: SchedulingPass, item: Pending) -> HoldDetails | None:
        unmet = start_conditions.unmet_conditions(item, self._policy, self._balances, self._now)
        if unmet:
            return start_conditions.hold_for_unmet(unmet)
        refusal = self._refusals.get(item.shape)
        if refusal is None or not refusal.unchecked:
            return None if refusal is None else refusal.details
        blocked_by = next((guard.session_id for guard in scheduling_pass.reserved.guards), None)
        return HoldDetails(Reason.RESERVED, refusal.refusals, blocked_by=blocked_by)

    def _undo(
        self,
        pool: NodePool,
        scheduling_pass: SchedulingPass,
        over_quota: Iterable[tuple[OwnerQueue, list[Pending]]],
    ) -> None:
        """Restore the invariants between passes: nothing is reserved, allocated or charged."""
        for guard in scheduling_pass.reserved.guards:
            if guard.node.reserved:
                pool.unreserve(guard.node)

        # Committed places are reported later; until then these agents stay as they were.
        self._changed |= {node.agent.agent_id for node in pool.allocated_nodes}
        pool.allocated_nodes.clear()
        self._refusals.forget_constrained()
        self._balances.undo_charges()

        for owner, _ in over_quota:
            # Keep sessions over quota unparked unless all places of this plan are committed.
            if self._balances.check(owner.items[0]):
                self._index.park(owner)

    def _forget(self, session_id: SessionId) -> None:
        item = self._pending.pop(session_id, None)
        self._new.discard(session_id)
        if item is None:
            return
        self._individual.discard(session_id)
        if _is_indexed(item):
            self._index.remove(item, session_id in self._overdue)
            self._overdue.discard(session_id)

    def _add_to_index(self, item: Pending, overdue: bool) -> None:
        if self._index.add(item, overdue):
            self._open.add(item.shape)
        patience = self._policy.max_skip_age
        if overdue:
            self._overdue.add(item.session_id)
        elif patience is not None and self.is_incremental:
            heappush(self._due, (item.queued_since + patience, item.session_id))

    def _move_overdue(self, now: int) -> None:
        """Move the sessions that have become overdue by age since the last pass."""
        while self._due and self._due[0][0] <= now:
            _, session_id = heappop(self._due)
            item = self._pending.get(session_id)
            if item is None or session_id in self._overdue or not _is_indexed(item):
                continue
            if is_overdue(item, self._policy, now):
                self._index.remove(item, False)
                self._add_to_index(item, True)

        if len(self._due) > 2 * len(self._pending) + _MIN_DUE:  # most of them started long ago
            patience = self._policy.max_skip_age or 0
            waiting = [item for item in self._pending.values() if _is_indexed(item)]
            self._due = [
                (item.queued_since + patience, item.session_id)
                for item in waiting
                if item.session_id not in self._overdue
            ]
            heapify(self._due)


def _is_indexed(item: Pending) -> bool:
    """Whether capacity and quotas treat it like all others of its shape and owner."""
    return item.unconstrained and item.shape.single_kernel


def _same_node(old: AgentState, new: AgentState) -> bool:
    """Whether the agents differ only in free capacity and running work, if at all."""
    return (
        old.packed.capacity == new.packed.capacity
        and old.packed.healthy == new.packed.healthy
        and old.runtimes == new.runtimes
        and old.engines == new.engines
        and (old.schedulable, old.dials_out) == (new.schedulable, new.dials_out)
        and (old.arch, old.labels, old.max_kernels) == (new.arch, new.labels, new.max_kernels)
        and old.packed.families == new.packed.families
    )
