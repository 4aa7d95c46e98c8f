"""Gang placement of cluster sessions: all kernels or none.

single-node: all kernels on one agent; multi-node: each kernel on another agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.core.demand import SHARES_SUFFIX, Demand
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.results import Refusal, RefusalKind
from moorage.manager.scheduling.placement.feasible_set import Infeasibility, accepts_node, diagnose
from moorage.manager.scheduling.placement.free_capacity import Allocations
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.node_state import NodeState

# Each kernel's node and allocations, the main kernel first.
Assignment = list[tuple[NodeState, Allocations]]


def lower_bound(demands: Sequence[Demand]) -> Demand:
    """The minimum free capacity that a node needs to hold all of ``demands``. It is necessary, not
    sufficient, and cheap to search for.

    Fractions may share a device, so only the largest one counts."""
    total: dict[str, int] = {}
    fractions: dict[str, int] = {}
    for demand in demands:
        for slot, amount in demand:
            fraction = amount % 1000 if slot.endswith(SHARES_SUFFIX) else 0
            total[slot] = total.get(slot, 0) + amount - fraction
            fractions[slot] = max(fractions.get(slot, 0), fraction)

    return tuple((slot, amount + fractions[slot]) for slot, amount in total.items())


def place_gang(pool: NodePool, item: Pending, fraction: str) -> Assignment | None:
    """An assignment of all kernels to unreserved nodes, or None if there is none."""
    demands = item.shape.demands
    if item.shape.mode == "single-node":
        return _on_one_node(pool, item, fraction)

    counted = [pool.with_kernels(demand) for demand in demands]
    nodes = _on_separate_nodes(pool, item, counted)
    if nodes is None:
        return None

    return [
        (node, node.select(demand, fraction)) for node, demand in zip(nodes, counted, strict=True)
    ]


def _on_one_node(pool: NodePool, item: Pending, fraction: str) -> Assignment | None:
    demands = item.shape.demands
    for node in pool.candidates(item, pool.with_kernels(lower_bound(demands), len(demands))):
        selected = node.select_all([pool.with_kernels(demand) for demand in demands], fraction)
        if selected is not None:
            return [(node, allocations) for allocations in selected]
    return None


def _on_separate_nodes(
    pool: NodePool, item: Pending, demands: Sequence[Demand]
) -> list[NodeState] | None:
    candidates: dict[Demand, list[NodeState]] = {}
    for demand in demands:
        if demand not in candidates:
            # With as many candidates as kernels, there is always a node left for each kernel.
            candidates[demand] = pool.best_candidates(item, demand, len(demands))
    matched = match_distinct([[node.rank for node in candidates[demand]] for demand in demands])
    return None if matched is None else [pool.nodes[rank] for rank in matched]


def match_distinct(choices: Sequence[Sequence[int]]) -> list[int] | None:
    """Choose a distinct entry for each row, or return None if that is impossible.

    Bipartite matching by augmenting paths. Earlier rows keep their preferred entries as long as the
    other rows can use different ones.
    """
    row_of: dict[int, int] = {}

    def assign(row: int, visited: set[int]) -> bool:
        for choice in choices[row]:
            if choice not in row_of:
                row_of[choice] = row
                return True

        for choice in choices[row]:
            if choice not in visited:
                visited.add(choice)
                if assign(row_of[choice], visited):
                    row_of[choice] = row
                    return True

        return False

    # Rows with few choices come first, because they have the fewest alternatives.
    for row in sorted(range(len(choices)), key=lambda index: (len(choices[index]), index)):
        if not assign(row, set()):
            return None

    matched = {row: choice for choice, row in row_of.items()}
    return [matched[row] for row in range(len(choices))]


def diagnose_gang(
    pool: NodePool, item: Pending, fraction: str
) -> tuple[Infeasibility, tuple[Refusal, ...]]:
    """Why ``item`` was not placed: the same reasons as for a single kernel, or that its kernels do
    not fit together."""
    demands = [pool.with_kernels(demand) for demand in item.shape.demands]
    single_node = item.shape.mode == "single-node"
    bound = lower_bound(item.shape.demands)
    required = pool.with_kernels(bound, len(demands)) if single_node else max(demands)
    feasible = pool.feasible_set(item.shape.constraints)
    infeasibility = diagnose(
        feasible,
        item,
        shape=item.shape,
        demand=required,
        quantized=pool.quantized,
        version=pool.version,
    )
    if infeasibility.reason is Reason.INSUFFICIENT_RESOURCES:
        usable = [node for node in feasible.schedulable if accepts_node(item, node, pool.quantized)]
        if not _would_fit(
            usable, demands, single_node=single_node, fraction=fraction, include_unhealthy=False
        ):
            # Only capacity is missing if the agents that accept new work would suffice once empty.
            anywhere = replace(item, avoid=frozenset())
            nodes = [
                node for node in feasible.nodes if accepts_node(anywhere, node, pool.quantized)
            ]
            possible = _would_fit(
                nodes, demands, single_node=single_node, fraction=fraction, include_unhealthy=True
            )
            reason = Reason.NO_ELIGIBLE_AGENT if possible else Reason.INFEASIBLE
            infeasibility = replace(infeasibility, reason=reason)

    refusals = infeasibility.refusals(required)
    fitting = sum(1 for _ in pool.candidates(item, required))
    if fitting:
        # Each of these nodes could take one of the kernels, or, judging by the sum of their sizes,
        # all of them.
        refusals = (
            *(
                refusal
                for refusal in refusals
                if refusal.kind is not RefusalKind.RESERVED or refusal.slot
            ),
            Refusal(
                RefusalKind.TOGETHER, "", requested=len(demands), available=fitting, agents=fitting
            ),
        )

    return infeasibility, refusals


def _would_fit(
    nodes: Sequence[NodeState],
    demands: Sequence[Demand],
    single_node: bool,
    fraction: str,
    *,
    include_unhealthy: bool,
) -> bool:
    """Whether all kernels would fit together if the nodes were empty."""
    if single_node:
        return any(
            node.when_empty(include_unhealthy).fits_all(tuple(demands), fraction) for node in nodes
        )

    def fits(node: NodeState, demand: Demand) -> bool:
        return node.could_ever_fit(demand) if include_unhealthy else node.fits_when_empty(demand)

    able = {d: [n.rank for n in nodes if fits(n, d)][: len(demands)] for d in set(demands)}
    return match_distinct([able[demand] for demand in demands]) is not None
