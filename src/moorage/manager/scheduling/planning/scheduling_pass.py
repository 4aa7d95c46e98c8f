"""Scheduling pass: each session of a queue gets a place or a hold, and blocked sessions get
reservations."""

from __future__ import annotations

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.backfill.earliest_fit_index import EarliestFits
from moorage.manager.scheduling.backfill.reservation import MAX_HOLDING, Reserver, reserve_overdue
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
from moorage.manager.scheduling.placement.feasible_set import diagnose
from moorage.manager.scheduling.placement.gang import Assignment, diagnose_gang, place_gang
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.selector_plugin import SelectorFailed
from moorage.manager.scheduling.planning.preemption import Preempter
from moorage.manager.scheduling.planning.refusal_cache import CachedRefusal, RefusalCache
from moorage.manager.scheduling.planning.reserved_nodes import ReservedNodes

# Skips NamedTuple.__new__, a Python function: one place is created per placed session.
_new = tuple.__new__
# Refusals that hold for all sessions of the same shape until the end of the pass.
_ANY_AGENT: frozenset[AgentId] = frozenset()
_SHARED_REASONS = frozenset(
    {Reason.INSUFFICIENT_RESOURCES, Reason.NO_ELIGIBLE_AGENT, Reason.INFEASIBLE}
)


class SchedulingPass:
    """``run`` decides about each session of a queue; ``plan`` returns the result.

    Most sessions of an equivalence class get the same hold. So holds are cached, and most of ten
    thousand sessions cost one dictionary look-up in ``run``. Two events void a cached hold: a new
    reservation (``_keep`` clears both caches), and a charge to a quota that applies to the class
    (``_charge`` drops its classes, because a hold reports how much of a quota is used).
    """

    def __init__(
        self,
        policy: Policy,
        now: int,
        pool: NodePool,
        quotas: Quotas,
        *,
        refusals: RefusalCache,
        earliest_fits: EarliestFits | None = None,
    ) -> None:
        self.policy = policy
        self.now = now
        self.pool = pool
        self.quotas = quotas
        self.refusals = refusals
        self._earliest_fits = earliest_fits
        self.reserved = ReservedNodes(pool, policy)
        self.places: list[Place] = []
        self.holds = Holds()
        self.victims: list[Victim] = []
        self._blocker: SessionId | None = None  # the session that ended the pass

        # The first session by queue key that waits for capacity, can be helped and is not overdue.
        self._head: Pending | None = None
        self._placed_keys: list[tuple[int, int, str]] = []
        self._any_blocked = False
        self._holding = 0  # overdue sessions with a reservation
        self._can_be_helped: dict[object, bool] = {}
        self._cursors_before = dict(pool.cursors)
        self._has_reservation = False
        self._preempter: Preempter | None = None
        if policy.preemption is not None:
            self._preempter = Preempter(pool, policy, policy.preemption, now)

        self._hold_of_class: dict[OwnedShape | None, HoldDetails] = {}
        self._hold_of_shape: dict[Shape, HoldDetails] = {}  # for sessions within their quotas
        self._hold_of_overdue: dict[Shape, HoldDetails] = {}  # the same for overdue sessions

        # The classes to drop from ``_hold_of_class`` when a quota is charged. ``_unindexed`` ones
        # are not in it yet: a pass that places nothing never needs it.
        self._classes_of_quota: dict[QuotaBalance, list[OwnedShape]] = {}
        self._unindexed: list[OwnedShape] = []
        self._no_predicates = policy.session_types is None and not policy.exclusive

        # With backfill, only the first refused session and overdue ones get reservations. With
        # preemption, each session may find its own victims, so its refusal says nothing about the
        # next one.
        self._shares_refusals = (
            policy.hol == "backfill" and self._preempter is None and self._no_predicates
        )
        # Elsewhere an older session may come after the one whose refusal it shares, and become the
        # head.
        self._is_oldest_first = policy.strategy == "fifo"
        self._fast_path = pool.fast_path and self._no_predicates
        self._has_quotas = bool(quotas)

    def run(self, queue: PendingQueue) -> None:
        """Add a place or a hold for each session of ``queue``."""
        holds = self._hold_of_class
        ids = self.holds.ids.append
        details = self.holds.details.append
        oldest_first = self._is_oldest_first
        for item in queue:
            # Most sessions of a long queue end here. The key None, of constrained ones, is never
            # present.
            known = holds.get(item.equivalence_class)
            if known is not None:
                ids(item.session_id)
                details(known)
                if not oldest_first:
                    self._consider_head(item, known)

                continue

            if self._decide(item):
                queue.placed(item)

    def _decide(self, item: Pending) -> bool:
        """Decide about a session. Returns whether it was placed."""
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

        if item.unconstrained and (known := self._known_hold(item)) is not None:
            self.holds.add(item.session_id, known)
            if not self._is_oldest_first:
                self._consider_head(item, known)

            return False

        tried = self._try_fast(item) if self._fast_path and item.fast_path else self._try(item)
        if isinstance(tried, Place):
            self._record_place(item, tried)
            return True

        self.holds.add(item.session_id, tried)
        reason, _, _, is_capacity, _, _ = tried
        overdue = (is_capacity or reason is Reason.RESERVED) and is_overdue(
            item, self.policy, self.now
        )
        if is_capacity or overdue:
            self._blocked(item, overdue)
        if self._shares_refusals and item.unconstrained and reason in _SHARED_REASONS:
            self._share(item, tried, overdue)

        return False

    def _consider_head(self, item: Pending, known: HoldDetails) -> None:
        """Consider a session that shares the refusal ``known``: it is the head if it is older than
        the current one."""
        head = self._head
        is_capacity = known[3]
        if (
            is_capacity
            and head is not None
            and item.queue_key < head.queue_key
            and not self.blocks_nobody(item.shape)
            and not is_overdue(item, self.policy, self.now)
        ):
            self._head = item

    def _known_hold(self, item: Pending) -> HoldDetails | None:
        """The hold of another session of the same shape."""
        known = self._hold_of_shape.get(item.shape)
        if known is not None:
            self._share_hold(item.owned_shape, known)
        elif self._hold_of_overdue and is_overdue(item, self.policy, self.now):
            known = self._hold_of_overdue.get(item.shape)
        return known

    def _share(self, item: Pending, details: HoldDetails, overdue: bool) -> None:
        if not overdue:
            self._hold_of_shape[item.shape] = details
            self._share_hold(item.owned_shape, details)
        elif not self.may_hold or not self._is_helpable(item):
            # Not for the others of its class: the first one that is not overdue may be the head.
            self._hold_of_overdue[item.shape] = details

    def _share_hold(self, owned_shape: OwnedShape, details: HoldDetails) -> None:
        self._hold_of_class[owned_shape] = details
        if self._has_quotas:
            self._unindexed.append(owned_shape)

    def _charge(self, item: Pending) -> None:
        """Charge the quotas, and drop the cached holds of all classes to which one of them
        applies."""
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
        """Like ``_try``, for most sessions of most groups: the best node by score takes it."""
        pool = self.pool
        request = pool.request(item.shape)
        known = self.refusals.find(item, request.demand)
        if known is not None and known.unchecked <= self.reserved.guards_of.keys():
            return self._try_reserved(item, known)

        changed = self.refusals.nodes_to_try(item.shape)
        node = pool.best(request) if changed is None else pool.best_among(changed, request, item)
        if node is None:
            return self._try_reserved(item, self._refuse(item, request.demand))

        allocations = pool.allocate_request(
            node, request, None if item.time_limit is None else self.now + item.time_limit
        )
        return _new(
            Place,
            (item.session_id, item.kernel_id, item.revision, node.agent.agent_id, allocations, ()),
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
            self.reserved.charge(node, allocations, ends_at)
            self.pool.assign(node, allocations, ends_at)
            self.pool.record_choice(item, node)
        return _place(item, assignment)

    def _try_single(self, item: Pending) -> Assignment | Place | HoldDetails:
        """Try unreserved nodes first, then what the guards of reserved nodes admit."""
        shape = item.shape
        pool = self.pool
        demand = pool.with_kernels(shape.total)
        known = self.refusals.find(item, demand)
        if known is None or not known.unchecked <= self.reserved.guards_of.keys():
            changed = self.refusals.nodes_to_try(shape) if item.unconstrained else None
            if changed is None:
                node = pool.choose(item, demand)
            else:
                node = pool.best_among(changed, pool.request(shape), item)

            if node is not None:
                allocations = pool.allocate(node, demand, self._ends_at(item))
                pool.record_choice(item, node)
                agent_id = node.agent.agent_id
                return Place(
                    item.session_id,
                    item.kernel_id,
                    item.revision,
                    agent_id,
                    allocations=allocations,
                )

            known = self._refuse(item, demand)

        return self._on_reserved_nodes(item, known)

    def _refuse(self, item: Pending, demand: Demand) -> CachedRefusal:
        """Record that no unreserved node takes it."""
        pool = self.pool
        shape = item.shape
        feasible = pool.feasible_set(shape.constraints)
        known = self.refusals.restore(shape) if item.unconstrained else None
        if known is None:
            infeasibility = diagnose(
                feasible,
                item,
                shape=shape,
                demand=demand,
                quantized=pool.quantized,
                version=pool.version,
            )
            known = self.refusals.add(item, demand, infeasibility)

        reserved = self.reserved.guards_of.keys() & feasible.schedulable_ranks
        known.unchecked = frozenset(rank for rank in reserved if pool.nodes[rank].fits(demand))
        return known

    def _try_gang(self, item: Pending) -> Assignment | HoldDetails:
        assignment = place_gang(self.pool, item, self.policy.fraction)
        if assignment is not None:
            return assignment
        return self._on_reserved_nodes(
            item, CachedRefusal(*diagnose_gang(self.pool, item, self.policy.fraction))
        )

    def _on_reserved_nodes(self, item: Pending, refusal: CachedRefusal) -> Assignment | HoldDetails:
        if refusal.pass_number != self.refusals.pass_number:
            refusal.begin_pass(self.refusals.pass_number)
        return self.reserved.admit(item, refusal, self._ends_at(item))

    def _ends_at(self, item: Pending) -> int | None:
        return None if item.time_limit is None else self.now + item.time_limit

    def _record_place(self, item: Pending, place: Place) -> None:
        self.places.append(place)
        if self._has_quotas:
            self._charge(item)
        self._placed_keys.append(item.queue_key)

    def _blocked(self, item: Pending, overdue: bool) -> None:
        """Handle missing capacity: the session may end the pass, preempt others, or get a
        reservation."""
        policy = self.policy
        found = None
        preempter = None if item.owned_shape.system else self._preempter
        if preempter is not None and (found := preempter.search(item)) is not None:
            self._keep(found[0], found[1])
            self.victims += found[2]
        elif not self._is_helpable(item):
            return  # it blocks nobody, and its right to a reservation passes to the next session

        first = not self._any_blocked
        self._any_blocked = True
        if not overdue and (self._head is None or item.queue_key < self._head.queue_key):
            self._head = item

        if policy.head_blocks:
            self._blocker = item.session_id
            self._hold_of_class.clear()
            self._hold_of_shape.clear()

        if found is not None:
            self._has_reservation = self._has_reservation or first
        elif policy.hol == "strict":
            return
        elif overdue and self.may_hold:
            self._holding += 1
            for reserved in reserve_overdue(self._reserver(item), item, policy, self.now):
                self._keep(*reserved)
                self._has_reservation = True
        elif first and policy.hol == "backfill":
            reserved_at_end = self._reserver(item).at_known_ends()
            if reserved_at_end is not None:
                self._keep(*reserved_at_end)
                self._has_reservation = True

    def _reserver(self, item: Pending) -> Reserver:
        pool = self.pool
        now = self.now
        guards_of = self.reserved.guards_of
        return Reserver(
            pool, item, policy=self.policy, now=now, guards_of=guards_of, index=self._earliest_fits
        )

    def _is_helpable(self, item: Pending) -> bool:
        """Whether it could start if all work that ends by itself had ended."""
        name = (item.shape, item.designated, item.avoid)
        found = self._can_be_helped.get(name)
        if found is None:
            found = self._can_be_helped[name] = self._reserver(item).can_be_helped()
        return found

    def _keep(self, reservation: Reservation, guards: list[ReservationGuard]) -> None:
        self.reserved.add(reservation, guards)
        self._hold_of_class.clear()
        self._hold_of_shape.clear()
        self._hold_of_overdue.clear()
        self._classes_of_quota.clear()
        self._unindexed.clear()

    @property
    def may_hold(self) -> bool:
        """Whether one more overdue session may get a reservation."""
        return self._holding < MAX_HOLDING

    def blocks_nobody(self, shape: Shape) -> bool:
        """Whether unconstrained sessions of this shape have turned out not to be helpable."""
        return self._can_be_helped.get((shape, _ANY_AGENT, _ANY_AGENT)) is False

    @property
    def has_head(self) -> bool:
        """Whether a session that is not overdue waits for capacity and can be helped."""
        return self._head is not None

    def plan(self) -> Plan:
        cursors = {
            arch: AgentId(last)
            for arch, last in sorted(self.pool.cursors.items())
            if self._cursors_before.get(arch) != last
        }
        return Plan(
            tuple(self.places),
            self.holds,
            reservations=tuple(self.reserved.reservations),
            victims=tuple(self.victims),
            cursors=cursors,
            bypasses=self._bypasses(),
        )

    def _bypasses(self) -> dict[SessionId, int]:
        """Count bypasses: the head was overtaken by each session that was placed although it comes
        later in the queue."""
        head = self._head
        if head is None:
            return {}
        overtaken = sum(key > head.queue_key for key in self._placed_keys)
        return {head.session_id: head.bypassed + overtaken} if overtaken else {}


def _place(item: Pending, assignment: Assignment) -> Place:
    (node, allocations), *rest = assignment
    sub_kernels = tuple(
        KernelPlace(kernel.kernel_id, other.agent.agent_id, its_allocations)
        for kernel, (other, its_allocations) in zip(item.sub_kernels, rest, strict=True)
    )
    return Place(
        item.session_id,
        item.kernel_id,
        item.revision,
        node.agent.agent_id,
        allocations=allocations,
        sub_kernels=sub_kernels,
    )
