"""Reservations: where a blocked session will fit, and from when.

A blocked session may get a reservation for a time by which enough work is known to end. An overdue
session is entitled to agents on which nothing new delays it, whether or not it is known when their
work ends. ``docs/scheduling.md`` states the resulting bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.scheduling.backfill.earliest_fit import (
    assumed_fit,
    assumed_key,
    awaited_sessions,
    capacity_at,
    earliest_fit,
)
from moorage.manager.scheduling.backfill.earliest_fit_index import EarliestFitIndex, EarliestFits
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import Reservation
from moorage.manager.scheduling.placement.feasible_set import accepts_node
from moorage.manager.scheduling.placement.free_capacity import FreeCapacity
from moorage.manager.scheduling.placement.gang import match_distinct
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.node_state import NodeState

GuardedReservation = tuple[Reservation, list[ReservationGuard]]
GuardsOf = Mapping[int, Sequence[ReservationGuard]]  # by the rank of their node
# The kernels that one node of the reservation must hold: either all of them or one.
Part = tuple[Demand, ...]
# Sort key by time: whether it comes last, the time, the node's rank.
_Fit = tuple[bool, int, int]

# Maximum number of overdue sessions for which agents are held, oldest first.
MAX_HOLDING = 8
# Maximum number of agents held for one session beyond those that it needs.
_MAX_SPARE = 16


class Reserver:
    """Finds reservations for one blocked session."""

    def __init__(
        self,
        pool: NodePool,
        item: Pending,
        policy: Policy,
        now: int,
        *,
        guards_of: GuardsOf,
        index: EarliestFits | None,
    ) -> None:
        indexed = item.unconstrained and item.shape.single_kernel and not pool.quantized
        self._index = index if indexed else None
        self._pool = pool
        self._item = item
        self._policy = policy
        self._now = now
        self._fraction = policy.fraction
        self._guards_of = guards_of
        demands = tuple(pool.with_kernels(demand) for demand in item.shape.demands)
        single_node = item.shape.mode == "single-node"
        self._parts: list[Part] = [demands] if single_node else [(demand,) for demand in demands]

    def can_be_helped(self) -> bool:
        """Whether the session fits on the agents that accept new work once all work there that ends
        by itself has ended."""
        return self._can_come_free(self._acceptable()) is not None

    def at_known_ends(self) -> GuardedReservation | None:
        """Reserve unreserved nodes, from the earliest known time at which they will have enough
        free."""
        if self._index is not None:
            found = self._index.known.first(
                self._pool, self._item.shape, self._now, self._guards_of.keys()
            )
            if found is None:
                return None

            starts_at = found[0]
            nodes = [found[1]]
        elif len(self._parts) == 1:
            best = self._earliest(self._parts[0])
            if best is None:
                return None

            starts_at = best[0]
            nodes = [best[1]]
        else:
            matched = self._earliest_match()
            if matched is None:
                return None

            starts_at, nodes = matched

        waits_for = awaited_sessions(nodes, starts_at, self._now)
        reservation = Reservation(
            self._item.session_id,
            _agent_ids(nodes),
            starts_at=starts_at,
            basis="ends",
            waits_for=waits_for,
        )
        return reservation, [
            self._guard(node, starts_at, part, partial(capacity_at, node, starts_at, self._now))
            for node, part in zip(nodes, self._parts, strict=True)
        ]

    def by_holding(self, spare: int, before: int | None) -> GuardedReservation | None:
        """Hold the unreserved nodes that will probably be the first to have enough free, although
        it is not known when. No new work may use the scarce slots there. ``spare``: hold this many
        additional nodes. ``before``: hold them only if all of them may have enough before this
        time.

        The same nodes are held until they are free, unless others become free first.
        """
        found = self._held_nodes(len(self._parts) + spare)
        if found is None or (before is not None and found[0] >= before):
            return None

        nodes = found[1]
        # The spare nodes must have room for the largest kernel.
        parts = self._parts + [max(self._parts)] * (len(nodes) - len(self._parts))
        reservation = Reservation(self._item.session_id, _agent_ids(nodes), None, "held")
        return reservation, [
            self._guard(node, None, part, node.copy)
            for node, part in zip(nodes, parts, strict=True)
        ]

    def behind_others(self) -> GuardedReservation | None:
        """Reserve what remains of nodes that are reserved for older sessions."""
        nodes = self._can_come_free(sorted(self._acceptable(), key=self._reserved_until))
        if nodes is None:
            return None
        reservation = Reservation(self._item.session_id, _agent_ids(nodes), None, "held")
        return reservation, [
            self._guard(node, self._latest_start(node), part, partial(self._left_by_others, node))
            for node, part in zip(nodes, self._parts, strict=True)
        ]

    def _acceptable(self, excluded: Collection[int] = ()) -> Iterator[NodeState]:
        """The nodes on which the session could be placed if they were empty."""
        quantized = self._pool.quantized
        item = self._item
        always = item.unconstrained and not quantized
        for node in self._pool.feasible_set(item.shape.constraints).schedulable:
            if node.rank not in excluded and (always or accepts_node(item, node, quantized)):
                yield node

    def _earliest(self, part: Part) -> tuple[int, NodeState] | None:
        best: tuple[int, NodeState] | None = None
        single_kernel = self._item.shape.single_kernel
        for node in self._acceptable(self._guards_of.keys()):
            timeline = node.agent.free_timeline
            # A single kernel fits nowhere now, so it cannot fit on a node before some of the work
            # there ends.
            if (
                single_kernel
                and best is not None
                and timeline is not None
                and not node.planned
                and (not timeline or timeline[0][0] >= best[0])
            ):
                continue

            if not all(node.fits_when_empty(demand) for demand in part):
                continue

            at = earliest_fit(
                node, part, fraction=self._fraction, now=self._now, before=best[0] if best else None
            )
            if at is not None and (best is None or at < best[0]):
                best = at, node
                if at == self._now:
                    break

        return best

    def _earliest_match(self) -> tuple[int, list[NodeState]] | None:
        """The first time at which each kernel has its own node, and those nodes."""
        fits: dict[Part, list[_Fit]] = {}
        for part in set(self._parts):
            found = [
                (False, at, node.rank)
                for node in self._acceptable(self._guards_of.keys())
                if node.fits_when_empty(part[0])
                and (
                    at := earliest_fit(
                        node, part, fraction=self._fraction, now=self._now, before=None
                    )
                )
                is not None
            ]
            # With as many nodes as kernels, there is always a node left for each kernel.
            fits[part] = sorted(found)[: len(self._parts)]

        matched = _match_first([fits[part] for part in self._parts])
        return (
            None
            if matched is None
            else (matched[0], [self._pool.nodes[rank] for rank in matched[1]])
        )

    def _held_nodes(self, count: int) -> tuple[int, list[NodeState]] | None:
        """One node for each kernel, plus more up to ``count`` if there are any, and the last
        assumed fit among the kernels' nodes."""
        if self._index is not None:
            return self._held_by_index(self._index.assumed, count)

        fits: dict[Part, list[_Fit]] = {}
        for part in set(self._parts):
            order = sorted(
                assumed_key(at, node.rank, self._item.queued_since)
                for node in self._acceptable(self._guards_of.keys())
                if all(node.fits_when_empty(demand) for demand in part)
                and (at := assumed_fit(node, part, self._fraction, self._now)) is not None
            )
            fits[part] = order[:count]

        matched = _match_first([fits[part] for part in self._parts])
        if matched is None:
            return None

        at, ranks = matched
        ranks += [rank for _, _, rank in fits[max(self._parts)] if rank not in ranks]
        return at, [self._pool.nodes[rank] for rank in ranks[:count]]

    def _held_by_index(
        self, index: EarliestFitIndex, count: int
    ) -> tuple[int, list[NodeState]] | None:
        held: list[tuple[int, NodeState]] = []
        excluded = set(self._guards_of)
        while len(held) < count:
            found = index.first(
                self._pool,
                self._item.shape,
                now=self._now,
                excluded=excluded,
                since=self._item.queued_since,
            )
            if found is None:
                break

            held.append(found)
            excluded.add(found[1].rank)

        return (held[0][0], [node for _, node in held]) if held else None

    def _can_come_free(self, nodes: Iterable[NodeState]) -> list[NodeState] | None:
        """The first of ``nodes`` that have enough for each kernel once all work that ends by itself
        has ended."""
        nodes = list(nodes) if len(self._parts) > 1 else nodes
        count = len(self._parts)
        able = {
            part: list(
                islice((n.rank for n in nodes if n.can_come_free(part, self._fraction)), count)
            )
            for part in set(self._parts)
        }
        matched = match_distinct([able[part] for part in self._parts])

        return None if matched is None else [self._pool.nodes[rank] for rank in matched]

    def _reserved_until(self, node: NodeState) -> tuple[bool, int, int]:
        guards = self._guards_of.get(node.rank, ())
        known = [guard.starts_at for guard in guards if guard.starts_at is not None]
        return len(known) < len(guards), max(known, default=0), node.rank

    def _latest_start(self, node: NodeState) -> int | None:
        """The time at which the sessions for which the node is reserved will have started."""
        unknown, latest, _ = self._reserved_until(node)
        return None if unknown or not latest else latest

    def _left_by_others(self, node: NodeState) -> FreeCapacity:
        starts_at = self._latest_start(node)
        left = node.copy() if starts_at is None else capacity_at(node, starts_at, self._now)

        # A node may be reserved for one of a session's kernels from a known time, and also held for
        # another of them.
        needs: dict[SessionId, Part] = {}
        for guard in self._guards_of.get(node.rank, ()):
            needs[guard.session_id] = max(guard.demands, needs.get(guard.session_id, ()))

        needs.pop(self._item.session_id, None)
        for demands in needs.values():
            for demand in demands:
                left.take_what_is_left(demand, self._fraction)

        return left

    def _guard(
        self,
        node: NodeState,
        starts_at: int | None,
        part: Part,
        capacity: Callable[[], FreeCapacity],
    ) -> ReservationGuard:
        return ReservationGuard(
            self._item.session_id,
            node,
            starts_at=starts_at,
            demands=part,
            capacity_at_start=capacity,
            fraction=self._fraction,
        )


def _match_first(fits: Sequence[Sequence[_Fit]]) -> tuple[int, list[int]] | None:
    """The first time by which each row has an entry with a distinct rank, and those ranks.

    The time gets no later while no entry does, so nodes stay held: if each row took its preferred
    entry, a row might have to move to a node that is free much later, and lose the node that is
    held for it.
    """
    times = sorted({entry[:2] for entries in fits for entry in entries})

    def match_by(time: tuple[bool, int]) -> list[int] | None:
        return match_distinct(
            [[rank for *at, rank in entries if tuple(at) <= time] for entries in fits]
        )

    first = bisect_left(times, True, key=lambda time: match_by(time) is not None)
    if first == len(times):
        return None

    matched = match_by(times[first])
    return None if matched is None else (times[first][1], matched)


def _agent_ids(nodes: Iterable[NodeState]) -> tuple[AgentId, ...]:
    return tuple(node.agent.agent_id for node in nodes)


def reserve_overdue(
    reserver: Reserver, item: Pending, policy: Policy, now: int
) -> list[GuardedReservation]:
    """An overdue session's reservations, which keep new work from delaying it; none if no
    reservation would help now.

    It gets a reservation based on known end times, and holds nodes that may be free earlier: one
    for each kernel, and one more for each further ``max_skip_age`` that it waits, in case held
    nodes do not empty. It never gives up a held node for a known end time elsewhere, because new
    work could produce such end times again and again. If other sessions hold all of its nodes, its
    turn comes after theirs.
    """
    known = reserver.at_known_ends()
    patience = policy.max_skip_age
    found = [] if known is None else [known]
    spare = 0 if patience is None else (now - item.queued_since) // max(patience, 1) - 1
    before = None if known is None else known[0].starts_at
    held = reserver.by_holding(min(max(spare, 0), _MAX_SPARE), before)
    found += [] if held is None else [held]
    if not found:
        behind = reserver.behind_others()
        found += [] if behind is None else [behind]

    return found
