"""Reservations: where and from when a blocked session will fit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from moorage.common.model.ids import AgentId
from moorage.manager.scheduling.backfill.earliest_fit import (
    awaited_sessions,
    capacity_at,
    earliest_fit,
    shortfall,
)
from moorage.manager.scheduling.backfill.earliest_fit_index import EarliestFitIndex
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import Reservation
from moorage.manager.scheduling.placement.feasible_set import accepts_node
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.node_state import NodeState

GuardedReservation = tuple[Reservation, list[ReservationGuard]]


class Reserver:
    """Finds a reservation for one blocked session: at known ends, or by holding the nearest nodes."""

    _nodes: list[NodeState] | None = None

    def __init__(
        self, pool: NodePool, item: Pending, policy: Policy, now: int, index: EarliestFitIndex | None
    ) -> None:
        indexed = item.unconstrained and item.shape.single_kernel and not pool.quantized
        self._index = index if indexed else None
        self._pool, self._item, self._now, self._fraction = pool, item, now, policy.fraction
        demands = tuple(pool.with_kernels(demand) for demand in item.shape.demands)
        # What each node of the reservation must hold: all kernels, or one of them.
        single_node = item.shape.mode == "single-node"
        self._parts: list[tuple[Demand, ...]] = [demands] if single_node else [(d,) for d in demands]

    def _acceptable(self) -> list[NodeState]:
        """The unreserved nodes that the session could be placed on if they were empty."""
        if self._nodes is None:
            quantized, item = self._pool.quantized, self._item
            schedulable = self._pool.feasible_set(item.shape.constraints).schedulable
            nodes = [node for node in schedulable if not node.reserved]
            if quantized or not item.unconstrained:
                nodes = [node for node in nodes if accepts_node(item, node, quantized)]
            self._nodes = nodes
        return self._nodes

    def at_known_ends(self) -> GuardedReservation | None:
        """At the earliest known time, on the nodes that have enough free then."""
        found: dict[int, tuple[int, NodeState]] = {}
        for index in self._largest_first():
            best = self._earliest(self._parts[index], {node.rank for _, node in found.values()})
            if best is None:
                return None
            found[index] = best
        starts_at = max(at for at, _ in found.values())
        nodes = [found[index][1] for index in range(len(found))]
        waits_for = awaited_sessions(nodes, starts_at, self._now)
        reservation = Reservation(self._item.session_id, _agent_ids(nodes), starts_at, "ends", waits_for)
        guards = [
            self._guard(node, starts_at, demands) for node, demands in zip(nodes, self._parts, strict=True)
        ]
        return reservation, guards

    def _earliest(self, demands: tuple[Demand, ...], taken: set[int]) -> tuple[int, NodeState] | None:
        if self._index is not None:
            return self._index.first(self._pool, self._item.shape, self._now)
        best: tuple[int, NodeState] | None = None
        single_kernel = self._item.shape.single_kernel
        for node in self._acceptable():
            timeline = node.agent.free_timeline
            # A single kernel fits nowhere now, so it fits on no node before the first end there.
            if (
                single_kernel
                and best is not None
                and timeline is not None
                and not node.planned
                and (not timeline or timeline[0][0] >= best[0])
            ):
                continue
            if node.rank in taken or not all(node.could_ever_fit(demand) for demand in demands):
                continue
            at = earliest_fit(node, demands, self._fraction, self._now, best[0] if best else None)
            if at is not None and (best is None or at < best[0]):
                best = at, node
                if at == self._now:
                    break
        return best

    def by_holding(self) -> GuardedReservation | None:
        """On the nodes with the smallest shortfall, from an unknown time on: nothing new takes what is short
        there, so the shortfall can only shrink."""
        found: dict[int, NodeState] = {}
        for index in self._largest_first():
            demands, taken = self._parts[index], {node.rank for node in found.values()}
            nearest = sorted(
                (sum(shortfall(node.free, demand) for demand in demands), node.rank)
                for node in self._acceptable()
                if node.rank not in taken and all(node.could_ever_fit(demand) for demand in demands)
            )
            nodes = (self._pool.nodes[rank] for _, rank in nearest)
            node = next((n for n in nodes if n.when_empty().fits_all(demands, self._fraction)), None)
            if node is None:
                return None
            found[index] = node
        held = [found[index] for index in range(len(found))]
        reservation = Reservation(self._item.session_id, _agent_ids(held), None, "held")
        guards = [self._guard(node, None, demands) for node, demands in zip(held, self._parts, strict=True)]
        return reservation, guards

    def _largest_first(self) -> list[int]:
        return sorted(range(len(self._parts)), key=lambda index: (self._parts[index], -index), reverse=True)

    def _guard(self, node: NodeState, starts_at: int | None, demands: tuple[Demand, ...]) -> ReservationGuard:
        capacity = node.copy if starts_at is None else partial(capacity_at, node, starts_at, self._now)
        return ReservationGuard(self._item.session_id, node, starts_at, demands, capacity, self._fraction)


def _agent_ids(nodes: Iterable[NodeState]) -> tuple[AgentId, ...]:
    return tuple(node.agent.agent_id for node in nodes)


def reserve(
    pool: NodePool,
    item: Pending,
    policy: Policy,
    now: int,
    overdue: bool,
    index: EarliestFitIndex | None = None,
) -> GuardedReservation | None:
    """A reservation for ``item``, which fits nowhere now.

    None if no end is known and the session is not ``overdue``, so that nothing is held for it yet.
    ``index``: earliest fits of earlier passes.
    """
    reserver = Reserver(pool, item, policy, now, index)
    return reserver.at_known_ends() or (reserver.by_holding() if overdue else None)
