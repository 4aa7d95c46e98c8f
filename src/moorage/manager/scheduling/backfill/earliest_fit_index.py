"""Index of earliest fits: the first node with enough free for a shape, kept across passes.

An entry depends on one agent only, and stays valid until that agent changes. A pass in which few agents
changed so updates few entries, instead of computing the earliest fit on every node again.
``tests/model/test_planner.py`` holds it to a search over all nodes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from moorage.manager.scheduling.backfill.earliest_fit import earliest_fit
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.shape import Shape
from moorage.manager.scheduling.placement.free_capacity import KERNELS
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.node_state import NodeState
from moorage.manager.scheduling.placement.resource_request import ResourceRequest


class _ShapeTable:
    """``by_time``: (earliest fit, rank), sorted. ``by_rank``: the same by node. ``log_position``: the changes
    up to here are applied."""

    __slots__ = ("by_rank", "by_time", "log_position")

    def __init__(self, by_rank: dict[int, int], log_position: int) -> None:
        self.by_rank, self.log_position = by_rank, log_position
        self.by_time = sorted((at, rank) for rank, at in by_rank.items())

    def put(self, rank: int, at: int | None) -> None:
        old = self.by_rank.pop(rank, None)
        if old is not None:
            del self.by_time[bisect_left(self.by_time, (old, rank))]
        if at is not None:
            self.by_rank[rank] = at
            insort(self.by_time, (at, rank))


# A shape without a table first probes this many nodes, those with the earliest release. A table costs one
# earliest fit per node.
_MAX_PROBES = 64
# Changes per node in the log after which all tables are dropped.
_MAX_LOGGED = 8


class EarliestFitIndex:
    """For sessions of a single kernel that any node of their feasible set can take, and that fit on none now.

    Tables know nothing of the current pass: they hold what the agents reported. Nodes on which this pass has
    planned something are computed for each call.
    """

    def __init__(self, fraction: str, nodes: list[NodeState]) -> None:
        self._fraction, self._nodes = fraction, nodes
        self._tables: dict[Shape, _ShapeTable] = {}
        self._log: list[int] = []  # the rank of an agent for each of its changes
        # The first release of each node: a request that does not fit now does not fit before that.
        self._first_release = [_first_end(node) for node in nodes]
        self._by_first_release = sorted(
            (at, rank) for rank, at in enumerate(self._first_release) if at is not None
        )

    def update(self, ranks: Iterable[int]) -> None:
        """These agents have changed."""
        for rank in ranks:
            old, new = self._first_release[rank], _first_end(self._nodes[rank])
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

    def first(self, pool: NodePool, shape: Shape, now: int) -> tuple[int, NodeState] | None:
        """The earliest fit (unix microseconds, not before ``now``) and its node, the first among equals; None
        if unknown. Counts what this pass has planned."""
        request = pool.request(shape)
        busy = {node.rank for node in pool.allocated_nodes}
        probed, best = (False, None) if shape in self._tables else self._probe(request, busy, now)
        if not probed:
            best = self._look_up(shape, request, busy, now)
        for node in pool.allocated_nodes:
            if node.rank not in request.ranks or not node.could_ever_fit(request.demand):
                continue
            ends = [ends_at for ends_at, _ in node.planned if ends_at is not None]
            first = min([self._first_release[node.rank] or now, *ends], default=now)
            if best is not None and max(first, now) > best[0] and not node.fits(request.demand):
                continue
            at = earliest_fit(node, (request.demand,), self._fraction, now, None)
            if at is not None and (best is None or (at, node.rank) < best):
                best = at, node.rank
        return None if best is None else (best[0], pool.nodes[best[1]])

    def _probe(
        self, request: ResourceRequest, busy: set[int], now: int
    ) -> tuple[bool, tuple[int, int] | None]:
        """Whether ``_MAX_PROBES`` nodes sufficed, and the result: (earliest fit, rank)."""
        best: tuple[int, int] | None = None
        for probes, (first, rank) in enumerate(self._by_first_release):
            if best is not None and first > best[0]:
                break
            if probes == _MAX_PROBES:
                return False, None
            if rank in request.ranks and rank not in busy:
                at = self._earliest_fit(self._nodes[rank], request.demand)
                if at is not None and (best is None or (max(at, now), rank) < best):
                    best = max(at, now), rank
        return True, best

    def _look_up(
        self, shape: Shape, request: ResourceRequest, busy: set[int], now: int
    ) -> tuple[int, int] | None:
        by_time = self._table(shape, request).by_time
        past = bisect_right(by_time, (now, len(self._nodes)))
        ranks = [rank for _, rank in by_time[:past] if rank not in busy]
        if ranks:
            return now, min(ranks)
        return next((entry for entry in by_time[past:] if entry[1] not in busy), None)

    def _table(self, shape: Shape, request: ResourceRequest) -> _ShapeTable:
        table, demand = self._tables.get(shape), request.demand
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
        """Without what this pass has planned, and as of time 0, so that entries do not age: an end in the
        past keeps its time."""
        if not node.could_ever_fit(demand):
            return None
        unplanned = NodeState(node.agent, node.rank, KERNELS in node.free) if node.planned else node
        return earliest_fit(unplanned, (demand,), self._fraction, 0, None)


def _first_end(node: NodeState) -> int | None:
    return min(
        (running.ends_at for running in node.agent.running if running.ends_at is not None), default=None
    )
