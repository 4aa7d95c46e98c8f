"""Index of earliest fits: the first node with enough free for a shape, kept across passes.

An entry depends on only one agent, and stays valid until that agent changes. A pass in which few
agents changed therefore updates few entries instead of recomputing the earliest fit on every node.
``tests/model/test_planner.py`` compares it with a search over all nodes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from itertools import chain

from moorage.manager.scheduling.backfill.earliest_fit import (
    FREE,
    LONG_RUN,
    assumed_fit,
    assumed_key,
    earliest_fit,
)
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.shape import Shape
from moorage.manager.scheduling.placement.free_capacity import KERNELS
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.node_state import NodeState
from moorage.manager.scheduling.placement.resource_request import ResourceRequest


class _ShapeTable:
    """``by_time``: (earliest fit, rank), sorted. ``by_rank``: the same by node. ``log_position``:
    the changes up to this position have been applied."""

    __slots__ = ("by_rank", "by_time", "log_position")

    def __init__(self, by_rank: dict[int, int], log_position: int) -> None:
        self.by_rank = by_rank
        self.log_position = log_position
        self.by_time = sorted((at, rank) for rank, at in by_rank.items())

    def put(self, rank: int, at: int | None) -> None:
        old = self.by_rank.pop(rank, None)
        if old is not None:
            del self.by_time[bisect_left(self.by_time, (old, rank))]
        if at is not None:
            self.by_rank[rank] = at
            insort(self.by_time, (at, rank))


# For a shape without a table, this many nodes are probed first: those with the earliest release. A
# table requires computing one earliest fit per node.
_MAX_PROBES = 64
# All tables are dropped once the log contains this many changes per node.
_MAX_LOGGED = 8


# A node's sort key: whether it comes last, the earliest fit, the rank.
_Key = tuple[bool, int, int]


class EarliestFitIndex:
    """For single-kernel sessions that could run on any node of their feasible set, but fit on none
    now.

    ``assumed``: whether to use assumed end times where the real ones are unknown (see
    ``assumed_key``).

    The tables reflect what the agents reported, without the current pass. Nodes on which this pass
    has planned something are computed on each call.
    """

    def __init__(self, fraction: str, nodes: list[NodeState], assumed: bool = False) -> None:
        self._fraction = fraction
        self._nodes = nodes
        self._assumed = assumed
        self._tables: dict[Shape, _ShapeTable] = {}
        self._log: list[int] = []  # the agent's rank, once for each change

        # The first release on each node. A request that does not fit now cannot fit before it.
        self._first_release = [_first_end(node) for node in nodes]
        self._by_first_release = sorted(
            (at, rank) for rank, at in enumerate(self._first_release) if at is not None
        )

    def update(self, ranks: Iterable[int]) -> None:
        """Record that these agents have changed."""
        for rank in ranks:
            old = self._first_release[rank]
            new = _first_end(self._nodes[rank])
            if old != new:
                self._first_release[rank] = new
                if old is not None:
                    del self._by_first_release[bisect_left(self._by_first_release, (old, rank))]
                if new is not None:
                    insort(self._by_first_release, (new, rank))

            if self._tables:
                self._log.append(rank)

        if len(self._log) > _MAX_LOGGED * len(self._nodes):
            self._tables.clear()
            self._log.clear()

    def first(
        self,
        pool: NodePool,
        shape: Shape,
        now: int,
        excluded: Collection[int] = (),
        *,
        since: int = 0,
    ) -> tuple[int, NodeState] | None:
        """The earliest fit (Unix microseconds, not before ``now`` unless assumed) and its node, the
        first among equals; None if it is unknown. Includes the placements of this pass.
        ``excluded``: ranks to skip. ``since``: see ``assumed_key``."""
        request = pool.request(shape)
        busy = {node.rank for node in pool.allocated_nodes}.union(excluded)
        probed = False
        best = None
        if not self._assumed and shape not in self._tables:
            probed, best = self._probe(request, busy, now)

        if not probed:
            table = self._table(shape, request)
            best = (
                _first_assumed(table, busy, since)
                if self._assumed
                else _first_known(table, busy, now)
            )

        for node in pool.allocated_nodes:
            if node.rank in excluded or node.rank not in request.ranks:
                continue

            found = self._planned_fit(node, request.demand, now=now, since=since, best=best)
            if found is not None and (best is None or found < best):
                best = found

        return None if best is None else (best[1], pool.nodes[best[2]])

    def _planned_fit(
        self, node: NodeState, demand: Demand, now: int, since: int, *, best: _Key | None
    ) -> _Key | None:
        """The fit on a node on which this pass has planned something; None if there is none, or if
        it is no better than ``best``."""
        if not node.fits_when_empty(demand):
            return None
        if self._assumed:
            at = assumed_fit(node, (demand,), self._fraction, now)
            return None if at is None else assumed_key(at, node.rank, since)

        ends = [ends_at for ends_at, _ in node.planned if ends_at is not None]
        first = min([self._first_release[node.rank] or now, *ends], default=now)
        if best is not None and max(first, now) > best[1] and not node.fits(demand):
            return None

        at = earliest_fit(node, (demand,), fraction=self._fraction, now=now, before=None)
        return None if at is None else _known_key(at, node.rank, now)

    def _probe(
        self, request: ResourceRequest, busy: set[int], now: int
    ) -> tuple[bool, _Key | None]:
        """Try up to ``_MAX_PROBES`` nodes. Returns whether they sufficed, and the result."""
        best: _Key | None = None
        for probes, (first, rank) in enumerate(self._by_first_release):
            if best is not None and first > best[1]:
                break
            if probes == _MAX_PROBES:
                return False, None

            if rank in request.ranks and rank not in busy:
                at = self._earliest_fit(self._nodes[rank], request.demand)
                if at is not None and (best is None or _known_key(at, rank, now) < best):
                    best = _known_key(at, rank, now)

        return True, best

    def _table(self, shape: Shape, request: ResourceRequest) -> _ShapeTable:
        table = self._tables.get(shape)
        demand = request.demand
        if table is None:
            found = {rank: self._earliest_fit(self._nodes[rank], demand) for rank in request.ranks}
            known = {rank: at for rank, at in found.items() if at is not None}
            table = self._tables[shape] = _ShapeTable(known, len(self._log))
        elif table.log_position < len(self._log):
            for rank in set(self._log[table.log_position :]) & request.ranks:
                table.put(rank, self._earliest_fit(self._nodes[rank], demand))
            table.log_position = len(self._log)

        return table

    def _earliest_fit(self, node: NodeState, demand: Demand) -> int | None:
        """Earliest fit without the placements of this pass, and as of time 0, so that entries do
        not age: an end time in the past is kept as it is."""
        if not node.fits_when_empty(demand):
            return None
        unplanned = NodeState(node.agent, node.rank, KERNELS in node.free) if node.planned else node
        if self._assumed:
            return assumed_fit(unplanned, (demand,), self._fraction, 0)
        return earliest_fit(unplanned, (demand,), fraction=self._fraction, now=0, before=None)


class EarliestFits:
    """``known``: the index of earliest fits by known end times. ``assumed``: the index that also
    uses assumed end times."""

    def __init__(self, fraction: str, nodes: list[NodeState]) -> None:
        self.known = EarliestFitIndex(fraction, nodes)
        self.assumed = EarliestFitIndex(fraction, nodes, assumed=True)

    def update(self, ranks: Iterable[int]) -> None:
        """Record that these agents have changed."""
        ranks = list(ranks)
        self.known.update(ranks)
        self.assumed.update(ranks)


def _known_key(at: int, rank: int, now: int) -> _Key:
    return False, max(at, now), rank


def _first_known(table: _ShapeTable, busy: Collection[int], now: int) -> _Key | None:
    """First known fit. All times up to ``now`` count as equal."""
    by_time = table.by_time
    past = bisect_left(by_time, (now + 1,))
    ranks = [rank for _, rank in by_time[:past] if rank not in busy]
    if ranks:
        return False, now, min(ranks)
    found = next((entry for entry in by_time[past:] if entry[1] not in busy), None)
    return None if found is None else (False, *found)


def _first_assumed(table: _ShapeTable, busy: Collection[int], since: int) -> _Key | None:
    """First assumed fit, in the order of ``assumed_key``: free nodes, then the others, then those
    with very long-running work."""
    by_time = table.by_time
    others = bisect_left(by_time, (FREE + 1,))
    recent = max(others, bisect_left(by_time, (since - LONG_RUN,)))
    order = chain(by_time[:others], by_time[recent:], by_time[others:recent])
    found = next((entry for entry in order if entry[1] not in busy), None)
    return None if found is None else assumed_key(*found, since)


def _first_end(node: NodeState) -> int | None:
    return min(
        (running.ends_at for running in node.agent.running if running.ends_at is not None),
        default=None,
    )
