"""Round-robin selection: nodes by agent id, starting after the one chosen last for the requested
architecture."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.shape import NodeConstraints, Shape
from moorage.manager.scheduling.placement.node_state import NodeState


class RoundRobin:
    """``cursors``: the agent chosen last, by requested architecture; updated in place."""

    def __init__(self, nodes: list[NodeState], cursors: dict[str, str]) -> None:
        self._nodes = nodes
        self.cursors = cursors
        # Ranks of the nodes on which a demand may still fit. Free capacity only shrinks during a
        # pass, so a node that was too small once is dropped.
        self._remaining: dict[tuple[NodeConstraints, Demand], list[int]] = {}

    def candidates(
        self, shape: Shape, demand: Demand, schedulable: list[NodeState]
    ) -> Iterator[NodeState]:
        """Nodes on which ``demand`` fits now, best first."""
        name = (shape.constraints, demand)
        remaining = self._remaining.get(name)
        if remaining is None:
            remaining = self._remaining[name] = sorted(node.rank for node in schedulable)

        last = self.cursors.get(shape.constraints.arch, "")
        start = bisect_right(remaining, last, key=lambda rank: self._nodes[rank].agent.agent_id)
        for rank in (*remaining[start:], *remaining[:start]):
            node = self._nodes[rank]
            if node.reserved:
                continue

            if node.fits(demand):
                yield node
            else:
                del remaining[bisect_left(remaining, rank)]

    def record_choice(self, shape: Shape, node: NodeState) -> None:
        self.cursors[shape.constraints.arch] = node.agent.agent_id
