"""Scheduling pass: each session in a queue gets a place or a hold, and blocked sessions get
reservations."""

from __future__ import annotations

from typing import NamedTuple

from moorage.common.model.ids import AgentId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.backfill.earliest_fit_index import EarliestFits
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core import start_conditions
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.order import PendingQueue, is_overdue
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import Quotas
from moorage.manager.scheduling.core.results import (
    HoldDetails,
    Holds,
    Place,
    Plan,
    Reservation,
    Victim,
)
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.planning.blocked_sessions import BlockedSessions
from moorage.manager.scheduling.planning.hold_cache import HoldCache
from moorage.manager.scheduling.planning.placer import Placer
from moorage.manager.scheduling.planning.preemption import Preempter
from moorage.manager.scheduling.planning.queue_head import QueueHead
from moorage.manager.scheduling.planning.refusal_cache import RefusalCache
from moorage.manager.scheduling.planning.reserved_nodes import ReservedNodes

# Refusals that apply to all sessions of the same shape until the pass ends.
_SHARED_REASONS = frozenset(
    {Reason.INSUFFICIENT_RESOURCES, Reason.NO_ELIGIBLE_AGENT, Reason.INFEASIBLE}
)


class _Shortcuts(NamedTuple):
    """Steps that a pass may skip under its policy.

    ``no_start_conditions``: the policy adds none. ``shares_refusals``: with backfill, only the
    first refused session and overdue ones get reservations; with preemption, each session may find
    its own victims, so its refusal says nothing about the next one. ``is_oldest_first``: without
    this order, an older session may come after the one whose refusal it shares, and become the
    head. ``fast_path``: the best node by score may take a session.
    """

    no_start_conditions: bool
    shares_refusals: bool
    is_oldest_first: bool
    fast_path: bool


def _shortcuts(policy: Policy, pool: NodePool) -> _Shortcuts:
    no_start_conditions = policy.session_types is None and not policy.exclusive
    backfills = policy.hol == "backfill" and policy.preemption is None
    return _Shortcuts(
        no_start_conditions=no_start_conditions,
        shares_refusals=backfills and no_start_conditions,
        is_oldest_first=policy.strategy == "fifo",
        fast_path=pool.fast_path and no_start_conditions,
    )


class SchedulingPass:
    """``run`` decides about each session of a queue; ``plan`` returns the result."""

    def __init__(
        self,
        policy: Policy,
        now: int,
        pool: NodePool,
        *,
        quotas: Quotas,
        refusals: RefusalCache,
        earliest_fits: EarliestFits | None = None,
    ) -> None:
        self._policy = policy
        self._now = now
        self._pool = pool
        self._quotas = quotas
        self._has_quotas = bool(quotas)
        self._shortcuts = _shortcuts(policy, pool)
        self._cursors_before = dict(pool.cursors)
        self.reserved = ReservedNodes(pool, policy)
        self.places: list[Place] = []
        self.holds = Holds()
        self._victims: list[Victim] = []

        self._placer = Placer(pool, policy, now, refusals=refusals, reserved=self.reserved)
        self._hold_cache = HoldCache(quotas, policy, now)
        self.head = QueueHead()
        self.blocked = BlockedSessions(
            pool, policy, now, guards_of=self.reserved.guards_of, earliest_fits=earliest_fits
        )
        self._preempter: Preempter | None = None
        if policy.preemption is not None:
            self._preempter = Preempter(pool, policy, policy.preemption, now)

        # of the sessions after the one that ended the pass
        self._hold_after_end: HoldDetails | None = None

    def run(self, queue: PendingQueue) -> None:
        """Add a place or a hold for each session of ``queue``."""
        holds = self._hold_cache.of_class
        ids = self.holds.ids.append
        details = self.holds.details.append
        is_oldest_first = self._shortcuts.is_oldest_first
        for item in queue:
            # Most sessions of a long queue end here.
            known = holds.get(item.equivalence_class)
            if known is not None:
                ids(item.session_id)
                details(known)
                if not is_oldest_first:
                    self._consider_head(item, known)

                continue

            if self._place_or_hold(item):
                queue.placed(item)

    def _place_or_hold(self, item: Pending) -> bool:
        """Decide about a session. Returns whether it was placed."""
        if self._hold_after_end is not None:
            self.holds.add(item.session_id, self._hold_after_end)
            return False

        rules = self._shortcuts
        if rules.no_start_conditions and item.unconstrained:
            unmet = self._quotas.check(item) if self._has_quotas else ()
        else:
            unmet = start_conditions.unmet_conditions(item, self._policy, self._quotas, self._now)

        if unmet:
            hold = start_conditions.hold_for_unmet(unmet)
            self.holds.add(item.session_id, hold)
            if rules.no_start_conditions and item.unconstrained:
                self._hold_cache.share_in_class(item, hold)

            return False

        if item.unconstrained and (known := self._hold_cache.find(item)) is not None:
            self.holds.add(item.session_id, known)
            if not rules.is_oldest_first:
                self._consider_head(item, known)

            return False

        is_fast = rules.fast_path and item.fast_path
        tried = self._placer.try_fast(item) if is_fast else self._placer.try_any(item)
        if isinstance(tried, Place):
            self.places.append(tried)
            self._hold_cache.charge(item)
            self.head.note_placed(item)
            return True

        self.holds.add(item.session_id, tried)
        self._after_refusal(item, tried)
        return False

    def _after_refusal(self, item: Pending, hold: HoldDetails) -> None:
        overdue = (hold.capacity or hold.reason is Reason.RESERVED) and is_overdue(
            item, self._policy, self._now
        )
        if hold.capacity or overdue:
            self._block(item, overdue)

        is_shared = self._shortcuts.shares_refusals and item.unconstrained
        if is_shared and hold.reason in _SHARED_REASONS:
            if not overdue:
                self._hold_cache.share_in_shape(item, hold)
            elif not self.blocked.may_hold or not self.blocked.is_helpable(item):
                self._hold_cache.share_with_overdue(item, hold)

    def _consider_head(self, item: Pending, known: HoldDetails) -> None:
        """Consider a session that shares the refusal ``known``: it is the head if it is older than
        the current one."""
        head = self.head.session
        if (
            known.capacity
            and head is not None
            and item.queue_key < head.queue_key
            and not self.blocked.blocks_nobody(item.shape)
            and not is_overdue(item, self._policy, self._now)
        ):
            self.head.offer(item)

    def _block(self, item: Pending, overdue: bool) -> None:
        """Handle missing capacity: the session may end the pass, preempt others, or get a
        reservation."""
        preempted = None
        if self._preempter is not None and not item.owned_shape.system:
            preempted = self._preempter.search(item)

        if preempted is not None:
            self._keep(preempted.reservation, preempted.guards)
            self._victims += preempted.victims
        elif not self.blocked.is_helpable(item):
            return

        is_first = self.blocked.add()
        if not overdue:
            self.head.offer(item)

        if self._policy.head_blocks:
            self._hold_after_end = HoldDetails(
                Reason.INSUFFICIENT_RESOURCES, attempted=False, blocked_by=item.session_id
            )
            self._hold_cache.clear()

        if preempted is None:
            for kept in self.blocked.reserve(item, overdue=overdue, first=is_first):
                self._keep(*kept)

    def _keep(self, reservation: Reservation, guards: list[ReservationGuard]) -> None:
        self.reserved.add(reservation, guards)
        self._hold_cache.clear()

    def plan(self) -> Plan:
        cursors = {
            arch: AgentId(last)
            for arch, last in sorted(self._pool.cursors.items())
            if self._cursors_before.get(arch) != last
        }
        return Plan(
            tuple(self.places),
            self.holds,
            reservations=tuple(self.reserved.reservations),
            victims=tuple(self._victims),
            cursors=cursors,
            bypasses=self.head.bypasses(),
        )
