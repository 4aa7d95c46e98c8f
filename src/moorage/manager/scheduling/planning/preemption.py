"""Preemption: the running sessions that are stopped in favor of one of higher priority, what
stopping them frees, and when.

The victims of a request are, among all sets of preemptible sessions of lower priority whose end
lets it fit:

1. those whose highest priority is the lowest;
2. of these, the smallest: as few sessions as possible are stopped;
3. of these, the first by the victim order of the group over all its agents: lower priority first,
   then ``order``. The session that comes last in that order decides first.

Work that ends by itself before the grace period would end counts as free. If this is enough,
nothing is stopped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.policy import Policy, Preemption
from moorage.manager.scheduling.core.results import Reservation, Victim
from moorage.manager.scheduling.placement.feasible_set import accepts_node
from moorage.manager.scheduling.placement.free_capacity import FreeCapacity
from moorage.manager.scheduling.placement.gang import match_distinct
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.node_state import NodeState
from moorage.manager.scheduling.planning.hopeless import HopelessRequests
from moorage.manager.scheduling.planning.vacancies import Vacancies, owner_of, stop_time
from moorage.manager.scheduling.planning.victims import (
    Trials,
    VictimCandidate,
    fewest_victims,
    first_victims,
    least_count,
    spare,
    victim_cost,
)

# Maximum number of sessions in a pass for which victims are chosen, because the choice examines the
# candidates of every node. Sessions without possible victims are not counted, nor are those that
# only wait for work that will end anyway.
MAX_SEARCHES = 16
# How many sets of sessions a search tries in order to stop fewer sessions.
MAX_TRIALS = 2048
# Up to this number of candidates, and of agents with candidates, the victims of a multi-node
# cluster are chosen over all agents together. Beyond that, they are chosen kernel by kernel, the
# largest first.
MAX_JOINT = 10

Parts = list[tuple[Demand, ...]]  # demand of each node: all kernels, or one of them


class PreemptionResult(NamedTuple):
    """The reservation for a session, and the sessions that are stopped for it."""

    reservation: Reservation
    guards: list[ReservationGuard]
    victims: list[Victim]


class Preempter:
    """Victims of one pass. No session is stopped twice, and no node is vacated for two sessions."""

    def __init__(self, pool: NodePool, policy: Policy, rules: Preemption, now: int) -> None:
        self._pool = pool
        self._rules = rules
        self._fraction = policy.fraction
        self._vacancies = Vacancies(pool.nodes, policy.fraction, rules, now)
        self._searches = 0
        self._trials = Trials(0)
        self._hopeless_of: defaultdict[str | None, HopelessRequests] = defaultdict(
            lambda: HopelessRequests(pool.quantized)
        )

    def search(self, item: Pending) -> PreemptionResult | None:
        """Find victims for ``item``, which was refused for lack of capacity, and a reservation of
        what they release.

        Empty if enough becomes free by itself before the grace period would end. None if preemption
        does not help."""
        owner = owner_of(item, self._rules)
        self._vacancies.look_for(owner)
        levels = self._vacancies.levels(item.priority)
        hopeless = self._hopeless_of[owner]
        if not levels and not self._vacancies.any_terminating:
            return None
        if item in hopeless:
            return None

        demands = tuple(self._pool.with_kernels(demand) for demand in item.shape.demands)
        parts: Parts = [demands] if item.shape.mode == "single-node" else [(d,) for d in demands]
        nodes = self._acceptable(item)
        if found := self._fitting(parts, nodes, -1):
            return self._result(item, parts, found, [])

        exhausted = self._searches >= MAX_SEARCHES
        if exhausted or not levels or not self._fitting(parts, nodes, levels[-1]):
            hopeless.add(item)
            return None

        self._trials = Trials(MAX_TRIALS)
        self._searches = self._searches + 1
        low = 0
        high = len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if self._fitting(parts, nodes, levels[middle]):
                high = middle
            else:
                low = middle + 1

        chosen = self._choose(parts, nodes, levels[low])
        if chosen is None:
            hopeless.add(item)
            return None

        return self._result(item, parts, *chosen)

    def _acceptable(self, item: Pending) -> list[NodeState]:
        schedulable = self._pool.feasible_set(item.shape.constraints).schedulable
        quantized = self._pool.quantized
        nodes = [node for node in schedulable if not node.reserved]
        if item.unconstrained and not quantized:
            return nodes
        return [node for node in nodes if accepts_node(item, node, quantized)]

    def _fitting(
        self, parts: Parts, nodes: Sequence[NodeState], level: int
    ) -> list[NodeState] | None:
        """A node for each part if all candidates up to ``level`` are stopped, free nodes first."""
        able: dict[tuple[Demand, ...], list[int]] = {}
        for demands in parts:
            if demands not in able:
                fits = [
                    n
                    for n in nodes
                    if self._vacancies.free(n, level).fits_all(demands, self._fraction)
                ]
                if level < 0 and fits:
                    fits.sort(
                        key=lambda node: (self._vacancies.starts_at(node, demands, ()), node.rank)
                    )

                able[demands] = [node.rank for node in fits[: len(parts)]]

        matched = match_distinct([able[demands] for demands in parts])
        return None if matched is None else [self._pool.nodes[rank] for rank in matched]

    # --- the choice of victims

    def _choose(
        self, parts: Parts, nodes: Sequence[NodeState], level: int
    ) -> tuple[list[NodeState], list[VictimCandidate]] | None:
        if len(parts) == 1:
            best = self._cheapest_node(parts[0], nodes, level, ())
            return None if best is None else ([best[0]], best[1])

        vacated = [node for node in nodes if self._vacancies.candidates_on(node, level)]
        candidates = self._candidates_of(vacated, level)
        if max(len(vacated), len(candidates)) <= MAX_JOINT:
            return self._choose_jointly(parts, nodes, vacated, candidates)

        return self._choose_by_part(parts, nodes, level)

    def _candidates_of(self, nodes: Iterable[NodeState], level: int) -> list[VictimCandidate]:
        return sorted(
            {
                c.position: c for node in nodes for c in self._vacancies.candidates_on(node, level)
            }.values()
        )

    def _choose_jointly(
        self,
        parts: Parts,
        nodes: Sequence[NodeState],
        vacated: Sequence[NodeState],
        candidates: Sequence[VictimCandidate],
    ) -> tuple[list[NodeState], list[VictimCandidate]] | None:
        """Choose for all parts together. ``vacated``: the nodes that have ``candidates``; the
        others stay as they are."""
        ranks = {node.rank for node in vacated}
        others = [node for node in nodes if node.rank not in ranks]
        able = [
            [n.rank for n in others if self._vacancies.fits(n, demands, ())][: len(parts)]
            for demands in parts
        ]

        def match(stopped: Sequence[VictimCandidate]) -> list[int] | None:
            return match_distinct(
                [
                    [
                        *free,
                        *(
                            node.rank
                            for node in vacated
                            if self._vacancies.fits(node, demands, stopped)
                        ),
                    ]
                    for free, demands in zip(able, parts, strict=True)
                ]
            )

        def suffices(stopped: Sequence[VictimCandidate]) -> bool:
            return match(stopped) is not None

        known = first_victims(candidates, suffices)
        if known is None:
            return None

        victims = fewest_victims(candidates, suffices, range(1, len(known)), self._trials) or known
        matched = match(victims)
        assert matched is not None
        return [self._pool.nodes[rank] for rank in matched], victims

    def _choose_by_part(
        self, parts: Parts, nodes: Sequence[NodeState], level: int
    ) -> tuple[list[NodeState], list[VictimCandidate]] | None:
        found: dict[int, NodeState] = {}
        victims: list[VictimCandidate] = []
        for index in sorted(range(len(parts)), key=lambda i: (parts[i], -i), reverse=True):
            taken = {node.rank for node in found.values()}
            left = [node for node in nodes if node.rank not in taken]
            best = self._cheapest_node(parts[index], left, level, victims)
            if best is None:
                break

            found[index] = best[0]
            victims = sorted([*victims, *best[1]])

        if len(found) < len(parts):  # a kernel took the only possible node of another one
            matched = self._fitting(parts, nodes, level)
            if matched is None:
                return None

            found = dict(enumerate(matched))
            victims = self._candidates_of(matched, level)

        pairs = [(found[index], parts[index]) for index in range(len(parts))]
        victims = spare(
            victims, lambda rest: all(self._vacancies.fits(node, d, rest) for node, d in pairs)
        )
        return [node for node, _ in pairs], victims

    def _cheapest_node(
        self,
        demands: tuple[Demand, ...],
        nodes: Iterable[NodeState],
        level: int,
        stopped: Sequence[VictimCandidate],
    ) -> tuple[NodeState, list[VictimCandidate]] | None:
        """The node whose victims, in addition to those ``stopped`` anyway, are the best by
        ``victim_cost``."""
        best: tuple[tuple[int, list[int]], NodeState, list[VictimCandidate]] | None = None
        already = {candidate.position for candidate in stopped}
        for node in nodes:
            if not self._vacancies.free(node, level).fits_all(demands, self._fraction):
                continue

            candidates = self._vacancies.candidates_on(node, level)
            if already:
                candidates = [c for c in candidates if c.position not in already]

            victims = self._victims_on(
                node,
                demands,
                level=level,
                candidates=candidates,
                stopped=stopped,
                best=best[0] if best else None,
            )
            if victims is not None and (best is None or victim_cost(victims) < best[0]):
                best = victim_cost(victims), node, victims

        return None if best is None else best[1:]

    def _victims_on(
        self,
        node: NodeState,
        demands: tuple[Demand, ...],
        level: int,
        candidates: Sequence[VictimCandidate],
        *,
        stopped: Sequence[VictimCandidate],
        best: tuple[int, list[int]] | None,
    ) -> list[VictimCandidate] | None:
        """Victims on a node; all of ``candidates`` suffice. None if the victims would be worse than
        ``best``."""
        free = self._vacancies.free_without(node, stopped)
        if free.fits_all(demands, self._fraction):
            return []
        if best is not None and (1, [candidates[0].position]) > best:
            return None

        least = least_count(free, demands, lambda slot: self._vacancies.gains_on(node, level, slot))
        if best is not None and (least, [candidates[least - 1].position]) > best:
            return None

        def suffices(victims: Sequence[VictimCandidate]) -> bool:
            return self._vacancies.fits(node, demands, (*stopped, *victims))

        known = first_victims(candidates, suffices)
        if known is None:
            return None

        most = len(known) - 1 if best is None else min(len(known) - 1, best[0])
        return fewest_victims(candidates, suffices, range(least, most + 1), self._trials) or known

    # --- the reservation

    def _result(
        self,
        item: Pending,
        parts: Parts,
        nodes: Sequence[NodeState],
        victims: Sequence[VictimCandidate],
    ) -> PreemptionResult:
        rules = self._rules
        stopped = {victim.session_id for victim in victims}
        pairs = list(zip(nodes, parts, strict=True))
        starts_at = max(
            self._vacancies.starts_at(node, demands, stopped) for node, demands in pairs
        )
        guards = []
        awaited = list[tuple[int, SessionId]]()
        for node, demands in pairs:
            capacity = node.copy()
            for at, allocations, session_id in self._vacancies.events(node, stopped):
                if at <= starts_at:
                    capacity.release(allocations)
                    awaited += [(at, session_id)] if session_id is not None else []

            guards.append(
                self._guard(item, node, starts_at=starts_at, demands=demands, capacity=capacity)
            )

        if self._vacancies.stop(victims):
            self._hopeless_of.clear()

        waits_for = dict.fromkeys(
            [*(session_id for _, session_id in sorted(awaited)), *sorted(stopped)]
        )
        ids = tuple(node.agent.agent_id for node in nodes)
        reservation = Reservation(
            item.session_id,
            ids,
            starts_at=starts_at,
            basis="preemption" if victims else "ends",
            waits_for=tuple(waits_for),
        )
        chosen = [
            Victim(victim.session_id, item.session_id, rules.how, self._longest_stop(victim))
            for victim in victims
        ]

        return PreemptionResult(reservation, guards, chosen)

    def _longest_stop(self, victim: VictimCandidate) -> int:
        """The longest time that any of its kernels needs to stop."""
        kernels = (running for own in victim.kernels.values() for running in own)
        return max(stop_time(running, self._rules) for running in kernels)

    def _guard(
        self,
        item: Pending,
        node: NodeState,
        starts_at: int,
        demands: tuple[Demand, ...],
        *,
        capacity: FreeCapacity,
    ) -> ReservationGuard:
        return ReservationGuard(
            item.session_id,
            node,
            starts_at=starts_at,
            demands=demands,
            capacity_at_start=lambda: capacity,
            fraction=self._fraction,
        )
