"""Scheduling pass: each session of a queue gets a place or a hold, and blocked sessions get reservations."""

from __future__ import annotations

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.backfill.earliest_fit_index import EarliestFitIndex
from moorage.manager.scheduling.backfill.reservation import reserve
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core import predicates
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.order import PendingQueue, is_overdue
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import QuotaBalance, Quotas
from moorage.manager.scheduling.core.results import (
    HoldDetails,
    Holds,
    KernelPlace,
    Place,
    Plan,
    Refusal,
    RefusalKind,
    Reservation,
    Victim,
)
from moorage.manager.scheduling.core.shape import OwnedShape, Shape
from moorage.manager.scheduling.placement.feasible_set import accepts_node, diagnose
from moorage.manager.scheduling.placement.gang import Assignment, diagnose_gang, place_gang
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.selector_plugin import SelectorFailed
from moorage.manager.scheduling.planning.preemption import Preempter
from moorage.manager.scheduling.planning.refusal_cache import CachedRefusal, RefusalCache

# Skips NamedTuple.__new__, a Python function: one place is created per placed session.
_new = tuple.__new__
# Refusals that hold for all sessions of the same shape until the end of the pass.
_SHARED_REASONS = frozenset({Reason.INSUFFICIENT_RESOURCES, Reason.NO_ELIGIBLE_AGENT, Reason.INFEASIBLE})


class SchedulingPass:
    """``run`` decides about each session of a queue; ``plan`` returns the result.

    Sessions of one equivalence class mostly get the same hold. So holds are cached, and most of ten thousand
    sessions cost one dictionary look-up in ``run``. Two events make a cached hold void: a new reservation
    (``_keep`` clears both caches), and a charge to a quota that applies to the class (``_charge`` drops its
    classes, because a hold reports how much of a quota is used).
    """

    def __init__(
        self,
        policy: Policy,
        now: int,
        pool: NodePool,
        quotas: Quotas,
        refusals: RefusalCache,
        earliest_fits: EarliestFitIndex | None = None,
    ) -> None:
        self.policy, self.now, self.pool, self.quotas = policy, now, pool, quotas
        self.refusals, self._earliest_fits = refusals, earliest_fits
        self.guards: list[ReservationGuard] = []
        self.places: list[Place] = []
        self.holds = Holds()
        self.reservations: list[Reservation] = []
        self.victims: list[Victim] = []
        self._blocker: SessionId | None = None  # the session that ended the pass
        self._head: Pending | None = None  # the first session that capacity refused
        self._placed_before_head = 0
        # fifo with skip tries the head after sessions behind it: then queue keys decide who overtook it.
        self._placed_keys: list[tuple[int, int, str]] | None = None
        if policy.strategy == "fifo" and policy.hol == "skip":
            self._placed_keys = []
        self._cursors_before = dict(pool.cursors)
        self._has_reservation = False
        self._guards_of: dict[int, list[ReservationGuard]] = {}  # by the rank of their node
        self._reservation_version = 0
        self._preempter: Preempter | None = None
        if policy.preemption is not None:
            self._preempter = Preempter(pool, policy, policy.preemption, now)
        self._hold_of_class: dict[OwnedShape | None, HoldDetails] = {}
        self._hold_of_shape: dict[Shape, HoldDetails] = {}  # for sessions within their quotas
        # The classes to drop from ``_hold_of_class`` when a quota is charged. ``_unindexed`` are not in it
        # yet: a pass that places nothing never needs it.
        self._classes_of_quota: dict[QuotaBalance, list[OwnedShape]] = {}
        self._unindexed: list[OwnedShape] = []
        self._no_predicates = policy.session_types is None and not policy.exclusive
        # With backfill only the first refused session gets a reservation. With preemption each session may
        # find victims of its own, so its refusal says nothing of the next one.
        self._shares_refusals = policy.hol == "backfill" and self._preempter is None and self._no_predicates
        self._fast_path = pool.fast_path and self._no_predicates
        self._has_quotas = bool(quotas)

    def run(self, queue: PendingQueue) -> None:
        """Add a place or a hold for each session of ``queue``."""
        holds, ids, details = self._hold_of_class, self.holds.ids.append, self.holds.details.append
        for item in queue:
            # Most sessions of a long queue end here. The key None, of constrained ones, is never present.
            known = holds.get(item.equivalence_class)
            if known is not None:
                ids(item.session_id)
                details(known)
                continue
            if self._decide(item):
                queue.placed(item)

    def _decide(self, item: Pending) -> bool:
        """Whether it was placed."""
        if self._blocker is not None:
            details = (Reason.INSUFFICIENT_RESOURCES, (), False, False, self._blocker, ())
            self.holds.add(item.session_id, details)
            return False
        if self._no_predicates and item.unconstrained:
            unmet = self.quotas.check(item) if self._has_quotas else ()
        else:
            unmet = predicates.unmet_conditions(item, self.policy, self.quotas, self.now)
        if unmet:
            over = predicates.hold_for_unmet(unmet)
            self.holds.add(item.session_id, over)
            if self._no_predicates and item.unconstrained:
                self._share_hold(item.owned_shape, over)
            return False
        if item.unconstrained and (known := self._hold_of_shape.get(item.shape)) is not None:
            self.holds.add(item.session_id, known)
            self._share_hold(item.owned_shape, known)
            return False
        tried = self._try_fast(item) if self._fast_path and item.fast_path else self._try(item)
        if isinstance(tried, Place):
            self._record_place(item, tried)
            return True
        self.holds.add(item.session_id, tried)
        reason, _, _, is_capacity, _, _ = tried
        if is_capacity:
            self._blocked(item)
        if self._shares_refusals and item.unconstrained and reason in _SHARED_REASONS:
            self._hold_of_shape[item.shape] = tried
            self._share_hold(item.owned_shape, tried)
        return False

    def _share_hold(self, owned_shape: OwnedShape, details: HoldDetails) -> None:
        self._hold_of_class[owned_shape] = details
        if self._has_quotas:
            self._unindexed.append(owned_shape)

    def _charge(self, item: Pending) -> None:
        """Charge the quotas, and drop the cached holds of all classes to which one of them applies."""
        classes_of = self._classes_of_quota
        for owned_shape in self._unindexed:
            for balance, _, _ in self.quotas.charges(owned_shape):
                classes = classes_of.get(balance)
                if classes is None:
                    classes = classes_of[balance] = []
                classes.append(owned_shape)
        self._unindexed.clear()
        for balance, _, _ in self.quotas.charge(item):
            for owned_shape in classes_of.pop(balance, ()) if classes_of else ():
                self._hold_of_class.pop(owned_shape, None)

    def _try_fast(self, item: Pending) -> Place | HoldDetails:
        """``_try`` for most sessions of most groups: the best node by score takes it."""
        pool = self.pool
        request = pool.request(item.shape)
        known = self.refusals.find(item, request.demand)
        if known is not None and known.unchecked <= self._guards_of.keys():
            return self._try_reserved(item, known)
        changed = self.refusals.nodes_to_try(item.shape)
        node = (
            pool.best(request) if changed is None else pool.best_among(changed, request, item.shape.families)
        )
        if node is None:
            return self._try_reserved(item, self._refuse(item, request.demand))
        allocations = pool.allocate_request(
            node, request, None if item.time_limit is None else self.now + item.time_limit
        )
        return _new(
            Place, (item.session_id, item.kernel_id, item.revision, node.agent.agent_id, allocations, ())
        )

    def _try(self, item: Pending) -> Place | HoldDetails:
        try:
            found = self._try_gang(item) if not item.shape.single_kernel else self._try_single(item)
        except SelectorFailed as error:
            agents = len(self.pool.feasible_set(item.shape.constraints).schedulable)
            refusals = (Refusal(RefusalKind.SELECTOR, str(error), agents=agents),)
            return Reason.SELECTOR_FAILED, refusals, True, False, None, ()
        return self._assign(item, found) if isinstance(found, list) else found

    def _try_reserved(self, item: Pending, refusal: CachedRefusal) -> Place | HoldDetails:
        found = self._on_reserved_nodes(item, refusal)
        return self._assign(item, found) if isinstance(found, list) else found

    def _assign(self, item: Pending, assignment: Assignment) -> Place:
        ends_at = self._ends_at(item)
        for node, allocations in assignment:
            for guard in self._guards_of.get(node.rank, ()):
                guard.charge(allocations, ends_at)
                self._reservation_version += 1
            self.pool.assign(node, allocations, ends_at)
            self.pool.record_choice(item, node)
        return _place(item, assignment)

    def _try_single(self, item: Pending) -> Assignment | Place | HoldDetails:
        """Unreserved nodes first, then what the guards of reserved ones admit."""
        shape, pool = item.shape, self.pool
        demand = pool.with_kernels(shape.total)
        known = self.refusals.find(item, demand)
        if known is None or not known.unchecked <= self._guards_of.keys():
            changed = self.refusals.nodes_to_try(shape)
            if changed is None:
                node = pool.choose(item, demand)
            else:
                node = pool.best_among(changed, pool.request(shape), shape.families)
            if node is not None:
                allocations = pool.allocate(node, demand, self._ends_at(item))
                pool.record_choice(item, node)
                agent_id = node.agent.agent_id
                return Place(item.session_id, item.kernel_id, item.revision, agent_id, allocations)
            known = self._refuse(item, demand)
        return self._on_reserved_nodes(item, known)

    def _refuse(self, item: Pending, demand: Demand) -> CachedRefusal:
        """Cache that no unreserved node takes it."""
        pool, shape = self.pool, item.shape
        feasible = pool.feasible_set(shape.constraints)
        known = self.refusals.restore(shape) if item.unconstrained else None
        if known is None:
            infeasibility = diagnose(feasible, item, shape, demand, pool.quantized, pool.version)
            known = self.refusals.add(item, demand, infeasibility)
        reserved = self._guards_of.keys() & feasible.schedulable_ranks
        known.unchecked = frozenset(rank for rank in reserved if pool.nodes[rank].fits(demand))
        return known

    def _try_gang(self, item: Pending) -> Assignment | HoldDetails:
        assignment = place_gang(self.pool, item, self.policy.fraction)
        if assignment is not None:
            return assignment
        refusal = CachedRefusal(*diagnose_gang(self.pool, item, self.policy.fraction))
        if item.shape.mode == "single-node":
            return self._on_reserved_nodes(item, refusal)
        return refusal.details

    def _on_reserved_nodes(self, item: Pending, refusal: CachedRefusal) -> Assignment | HoldDetails:
        """On a node that is reserved for another session, if that session is not delayed."""
        if refusal.pass_number != self.refusals.pass_number:
            refusal.begin_pass(self.refusals.pass_number)
        if refusal.guards_without_fit == len(self.guards):
            return refusal.details
        ends_at = self._ends_at(item)
        in_time = tuple([guard.ends_in_time(ends_at) for guard in self.guards])
        version, blocked_by = refusal.denied.get(in_time, (-1, None))
        if version != self._reservation_version:
            found = self._ask_guards(item, ends_at)
            if isinstance(found, list):
                return found
            blocked_by = found
            if blocked_by is None:
                refusal.guards_without_fit = len(self.guards)
                return refusal.details
            refusal.denied[in_time] = self._reservation_version, blocked_by
        return Reason.RESERVED, refusal.refusals, True, False, blocked_by, ()

    def _ask_guards(self, item: Pending, ends_at: int | None) -> Assignment | SessionId | None:
        """An assignment, or the session that would be delayed, or None if it fits on no reserved node."""
        demands = [self.pool.with_kernels(demand) for demand in item.shape.demands]
        ranks = self.pool.feasible_set(item.shape.constraints).schedulable_ranks
        blocked_by: SessionId | None = None
        for rank, guards in sorted(self._guards_of.items()):
            node = self.pool.nodes[rank]
            if rank not in ranks or not accepts_node(item, node, self.pool.quantized):
                continue
            selected = node.select_all(demands, self.policy.fraction)
            if selected is None:
                continue
            everything = tuple([allocation for allocations in selected for allocation in allocations])
            if all(guard.admits(everything, ends_at, len(selected)) for guard in guards):
                return [(node, allocations) for allocations in selected]
            blocked_by = blocked_by or guards[0].session_id
        return blocked_by

    def _ends_at(self, item: Pending) -> int | None:
        return None if item.time_limit is None else self.now + item.time_limit

    def _record_place(self, item: Pending, place: Place) -> None:
        self.places.append(place)
        if self._has_quotas:
            self._charge(item)
        if self._placed_keys is not None:
            self._placed_keys.append(item.queue_key)

    def _blocked(self, item: Pending) -> None:
        """Capacity refused it: it may end the pass, preempt others, or get a reservation."""
        policy, first = self.policy, self._head is None
        if first:
            self._head, self._placed_before_head = item, len(self.places)
        elif (
            self._head is not None and self._placed_keys is not None and item.queue_key < self._head.queue_key
        ):
            self._head = item
        if policy.head_blocks:
            self._blocker = item.session_id
            self._hold_of_class.clear()
            self._hold_of_shape.clear()
        if self._preempter is not None:
            found = self._preempter.search(item)
            if found is not None:
                self._keep(found[0], found[1])
                self.victims += found[2]
                self._has_reservation = self._has_reservation or first
        if self._has_reservation or policy.hol == "strict":
            return
        overdue = is_overdue(item, policy, self.now)
        if (policy.hol == "backfill" and first) or (policy.hol == "skip" and overdue):
            reserved = reserve(self.pool, item, policy, self.now, overdue, self._earliest_fits)
            if reserved is not None:
                self._keep(*reserved)
                self._has_reservation = True

    def _keep(self, reservation: Reservation, guards: list[ReservationGuard]) -> None:
        self.reservations.append(reservation)
        for guard in guards:
            node = guard.node
            if not node.reserved:
                self.pool.reserve(node, reservation.session_id)
            self.guards.append(guard)
            self._guards_of.setdefault(node.rank, []).append(guard)
        self._reservation_version += 1
        self._hold_of_class.clear()
        self._hold_of_shape.clear()
        self._classes_of_quota.clear()
        self._unindexed.clear()

    @property
    def has_head(self) -> bool:
        """Whether capacity has refused a session."""
        return self._head is not None

    @property
    def reservation_version(self) -> int:
        """Grows with every change of the reservations and of what their guards admitted."""
        return self._reservation_version

    def plan(self) -> Plan:
        cursors = {
            arch: AgentId(last)
            for arch, last in sorted(self.pool.cursors.items())
            if self._cursors_before.get(arch) != last
        }
        return Plan(
            tuple(self.places),
            self.holds,
            tuple(self.reservations),
            tuple(self.victims),
            cursors,
            self._bypasses(),
        )

    def _bypasses(self) -> dict[SessionId, int]:
        """The head was overtaken by each session that was placed although it comes later in the queue."""
        head = self._head
        if head is None:
            return {}
        if self._placed_keys is not None:
            overtaken = sum(key > head.queue_key for key in self._placed_keys)
        else:
            overtaken = len(self.places) - self._placed_before_head
        return {head.session_id: head.bypassed + overtaken} if overtaken else {}


def _place(item: Pending, assignment: Assignment) -> Place:
    (node, allocations), *rest = assignment
    sub_kernels = tuple(
        KernelPlace(kernel.kernel_id, other.agent.agent_id, its_allocations)
        for kernel, (other, its_allocations) in zip(item.sub_kernels, rest, strict=True)
    )
    return Place(
        item.session_id, item.kernel_id, item.revision, node.agent.agent_id, allocations, sub_kernels
    )
