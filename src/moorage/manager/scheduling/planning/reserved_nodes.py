"""Reserved nodes of one pass: the reservations, and the other sessions that may start there."""

from __future__ import annotations

from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import HoldDetails, Reservation
from moorage.manager.scheduling.placement.feasible_set import accepts_node
from moorage.manager.scheduling.placement.free_capacity import Allocations
from moorage.manager.scheduling.placement.gang import Assignment, match_distinct
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.node_state import NodeState
from moorage.manager.scheduling.planning.refusal_cache import CachedRefusal

# Skips NamedTuple.__new__, a Python function.
_new = tuple.__new__


class ReservedNodes:
    """``guards_of``: by the rank of their node, in reservation order. ``version`` grows with every
    change of the reservations and of what their guards admitted."""

    def __init__(self, pool: NodePool, policy: Policy) -> None:
        self._pool = pool
        self._fraction = policy.fraction
        self.reservations: list[Reservation] = []
        self.guards: list[ReservationGuard] = []
        self.guards_of: dict[int, list[ReservationGuard]] = {}
        self.version = 0

    def add(self, reservation: Reservation, guards: list[ReservationGuard]) -> None:
        self.reservations.append(reservation)
        for guard in guards:
            node = guard.node
            if not node.reserved:
                self._pool.reserve(node, reservation.session_id)
            self.guards.append(guard)
            self.guards_of.setdefault(node.rank, []).append(guard)
        self.version += 1

    def charge(self, node: NodeState, allocations: Allocations, ends_at: int | None) -> None:
        """Account for admitted allocations on ``node``."""
        for guard in self.guards_of.get(node.rank, ()):
            guard.charge(allocations, ends_at)
            self.version += 1

    def admit(
        self, item: Pending, refusal: CachedRefusal, ends_at: int | None
    ) -> Assignment | HoldDetails:
        """An assignment that uses reserved nodes and delays none of their sessions, or the hold.

        ``refusal``: the refusal by all unreserved nodes."""
        if refusal.guards_without_fit == len(self.guards):
            return refusal.details

        in_time = tuple([guard.ends_in_time(ends_at) for guard in self.guards])
        version, blocked_by = refusal.denied.get(in_time, (-1, None))
        if version != self.version:
            single_node = item.shape.mode == "single-node"
            found = self._on_one(item, ends_at) if single_node else self._on_several(item, ends_at)
            if isinstance(found, list):
                return found

            blocked_by = found
            if blocked_by is None:
                refusal.note_no_fit(len(self.guards))
                return refusal.details

            refusal.denied[in_time] = self.version, blocked_by

        return _new(HoldDetails, (Reason.RESERVED, refusal.refusals, True, False, blocked_by, ()))

    def _on_one(self, item: Pending, ends_at: int | None) -> Assignment | SessionId | None:
        """An assignment on one node, or the session that would be delayed, or None if it fits on no
        reserved node."""
        demands = [self._pool.with_kernels(demand) for demand in item.shape.demands]
        blocked_by: SessionId | None = None
        for node in self._acceptable(item):
            selected = node.select_all(demands, self._fraction)
            if selected is None:
                continue

            everything = tuple(
                [allocation for allocations in selected for allocation in allocations]
            )
            delayed = self._delayed(node, everything, ends_at, len(selected))
            if delayed is None:
                return [(node, allocations) for allocations in selected]

            blocked_by = blocked_by or delayed

        return blocked_by

    def _on_several(self, item: Pending, ends_at: int | None) -> Assignment | SessionId | None:
        """The same for a cluster, whose kernels may be on reserved and on other nodes."""
        pool = self._pool
        demands = [self._pool.with_kernels(demand) for demand in item.shape.demands]
        blocked_by: SessionId | None = None
        free: dict[object, list[int]] = {}
        admitted: dict[object, list[int]] = {}
        reserved = list(self._acceptable(item))
        for demand in set(demands):
            ranks = [node.rank for node in pool.best_candidates(item, demand, len(demands))]
            free[demand] = list(ranks)
            admitted[demand] = ranks
            for node in reserved:
                if node.fits(demand):
                    free[demand].append(node.rank)
                    delayed = self._delayed(node, node.select(demand, self._fraction), ends_at, 1)
                    if delayed is None:
                        admitted[demand].append(node.rank)

                    blocked_by = blocked_by or delayed

        matched = match_distinct([admitted[demand] for demand in demands])
        if matched is not None:
            nodes = [pool.nodes[rank] for rank in matched]
            return [
                (n, n.select(demand, self._fraction))
                for n, demand in zip(nodes, demands, strict=True)
            ]

        return None if match_distinct([free[demand] for demand in demands]) is None else blocked_by

    def _acceptable(self, item: Pending) -> list[NodeState]:
        """Reserved nodes on which the session may run, by rank."""
        ranks = self._pool.feasible_set(item.shape.constraints).schedulable_ranks
        nodes = [self._pool.nodes[rank] for rank in sorted(self.guards_of.keys() & ranks)]
        return [node for node in nodes if accepts_node(item, node, self._pool.quantized)]

    def _delayed(
        self, node: NodeState, allocations: Allocations, ends_at: int | None, kernels: int
    ) -> SessionId | None:
        """The first session that would be delayed, among those for which the node is reserved; None
        if there is none."""
        guards = self.guards_of[node.rank]
        admitted = all(guard.admits(allocations, ends_at, kernels) for guard in guards)
        return None if admitted else guards[0].session_id
