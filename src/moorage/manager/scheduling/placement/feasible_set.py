"""Feasible sets: the agents that satisfy the constraints of a shape, and the reasons that agents
refuse a request."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.ids import AgentId
from moorage.common.model.reasons import Reason
from moorage.common.model.runtimes import WITH_IMAGES, unisolated
from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.demand import Demand, in_request_units
from moorage.manager.scheduling.core.model import AgentState, CapacityClass, Pending
from moorage.manager.scheduling.core.results import Refusal, RefusalKind
from moorage.manager.scheduling.core.shape import NodeConstraints, Shape
from moorage.manager.scheduling.placement.free_capacity import KERNELS, first_short_slot
from moorage.manager.scheduling.placement.node_state import NodeState


class RefusalCount:
    """``available``: the most that any of ``agents`` has; ``best``: the agent that has it."""

    __slots__ = ("agents", "available", "best")

    def __init__(self, available: int = 0, agents: int = 0, best: AgentId | None = None) -> None:
        self.available = available
        self.agents = agents
        self.best = best

    def add(self, available: int, agent_id: AgentId, agents: int = 1) -> None:
        if (
            self.best is None
            or available > self.available
            or (available == self.available and agent_id < self.best)
        ):
            self.available = available
            self.best = agent_id
        self.agents += agents


RefusalCounts = dict[tuple[RefusalKind, str], RefusalCount]
# Refusals by agents that could not take the session even if they were empty and schedulable.
_PERMANENT = frozenset(
    {
        RefusalKind.RUNTIME,
        RefusalKind.ISOLATION,
        RefusalKind.ENGINE,
        RefusalKind.ARCH,
        RefusalKind.LABELS,
        RefusalKind.DESIGNATED,
        RefusalKind.SHARES,
        RefusalKind.NEVER,
    }
)


def unmet_constraint(
    agent: AgentState, constraints: NodeConstraints
) -> tuple[RefusalKind, str] | None:
    """The first constraint that ``agent`` does not satisfy, and the name of the missing
    property."""
    runtime, engine, arch, labels, _ = constraints
    if runtime not in agent.runtimes:
        plain = unisolated(runtime)
        if not plain:
            return RefusalKind.RUNTIME, runtime

        return (
            (RefusalKind.ISOLATION, "") if plain in agent.runtimes else (RefusalKind.RUNTIME, plain)
        )

    if engine not in agent.engines and runtime not in WITH_IMAGES:
        return RefusalKind.ENGINE, engine
    if arch and agent.arch != arch:
        return RefusalKind.ARCH, arch

    for name, value in sorted(labels):
        if agent.labels.get(name) != value:
            return RefusalKind.LABELS, f"{name}={value}"

    return None


def unschedulable_reason(agent: AgentState, *, direct: bool) -> RefusalKind | None:
    """Why the agent accepts no new work at present. ``direct``: see ``NodeConstraints``.

    How an agent is reached may change, so a session waits for that just as it waits for a drain to
    end."""
    if direct and agent.dials_out:
        return RefusalKind.DIALS_OUT
    if agent.fenced:
        return RefusalKind.FENCED
    if not agent.available:
        return RefusalKind.UNAVAILABLE
    return RefusalKind.DRAINING if agent.draining else None


class NodeClass:
    """Nodes of equal total capacity, by agent id. A request that is too large for one is too large
    for all."""

    __slots__ = ("_free", "_version", "nodes")

    def __init__(self, nodes: list[NodeState]) -> None:
        self.nodes = nodes
        self._free: dict[str, list[int]] = {}
        self._version = -1

    def free_of(self, slot: str, version: int) -> list[int]:
        """Free amount of ``slot`` on each node. Cached for one ``version`` of the node pool."""
        if self._version != version:
            self._free.clear()
            self._version = version
        free = self._free.get(slot)
        if free is None:
            free = self._free[slot] = [node.free.get(slot, 0) for node in self.nodes]
        return free


class FeasibleSet:
    """The nodes of a group that satisfy ``constraints``.

    ``nodes`` are all of them, ``schedulable`` those that accept such work at present. ``unmet``
    counts the other agents by the missing property.
    """

    def __init__(self, nodes: list[NodeState], constraints: NodeConstraints) -> None:
        self.nodes: list[NodeState] = []
        self.unmet: RefusalCounts = {}
        runtime, engine, arch, labels, self.direct = constraints
        for node in nodes:
            agent = node.agent
            # The common case, without a call.
            if runtime in agent.runtimes and engine in agent.engines and not arch and not labels:
                self.nodes.append(node)
                continue

            unmet = unmet_constraint(agent, constraints)
            if unmet is None:
                self.nodes.append(node)
            else:
                self.unmet.setdefault(unmet, RefusalCount()).agents += 1

        self.schedulable = [
            node
            for node in self.nodes
            if (agent := node.agent).available and not agent.draining and not agent.fenced
        ]
        if self.direct:
            self.schedulable = [node for node in self.schedulable if not node.agent.dials_out]

        self.all_usable = len(self.schedulable) == len(self.nodes) and not any(
            node.has_unhealthy_devices for node in self.nodes
        )
        self.schedulable_ranks = frozenset([node.rank for node in self.schedulable])
        classes: dict[CapacityClass, list[NodeState]] = {}
        for node in self.nodes:
            members = classes.get(node.capacity_class)
            if members is None:
                members = classes[node.capacity_class] = []

            members.append(node)

        self.node_classes = [NodeClass(members) for members in classes.values()]


def accepts_node(item: Pending, node: NodeState, quantized: bool) -> bool:
    """Whether the session's own restrictions admit the node, regardless of what is free there.
    ``quantized``: see ``NodePool``."""
    agent_id = node.agent.agent_id
    if agent_id in item.avoid or (item.designated and agent_id not in item.designated):
        return False
    return (
        not quantized or not item.shape.fractions or node.supports_fractions(item.shape.fractions)
    )


@dataclass(slots=True)
class Infeasibility:
    """Why no node takes a request.

    ``candidates``: the nodes whose capacity decides whether a larger request could ever fit.
    """

    reason: Reason
    counts: RefusalCounts
    candidates: list[NodeState]

    @property
    def has_reserved(self) -> bool:
        """Whether the request fits on a node that is reserved for another session."""
        return any(kind is RefusalKind.RESERVED for kind, _ in self.counts)

    def refusals(self, demand: Demand) -> tuple[Refusal, ...]:
        amounts = dict(demand)
        return tuple(
            _refusal(
                kind,
                slot,
                amount=amounts.get(slot, 0),
                available=count.available,
                agents=count.agents,
                best=count.best,
            )
            for (kind, slot), count in sorted(self.counts.items(), key=lambda entry: entry[0])
        )

    def applies_to(self, demand: Demand) -> bool:
        """Whether the refusal also applies to a larger request. It may not, because the larger one
        might never fit where this one merely does not fit now."""
        if self.reason is Reason.INFEASIBLE or not self.candidates:
            return True

        wants_room = self.reason is Reason.INSUFFICIENT_RESOURCES
        for index, node in enumerate(self.candidates):
            if node.fits_when_empty(demand) if wants_room else node.could_ever_fit(demand):
                # Moved to the front, so that the next call finds it immediately.
                self.candidates[0], self.candidates[index] = node, self.candidates[0]
                return True

        return False


def diagnose(
    feasible: FeasibleSet,
    item: Pending,
    shape: Shape,
    demand: Demand,
    *,
    quantized: bool,
    version: int,
) -> Infeasibility:
    """Why no node took ``item``. Examines every node. ``quantized`` and ``version``: see
    ``NodePool``."""
    counts: RefusalCounts = dict(feasible.unmet)
    candidates: dict[RefusalKind, list[NodeState]] = {}
    unconstrained = item.unconstrained and not (quantized and shape.fractions)
    for node_class in feasible.node_classes:
        nodes = node_class.nodes
        slot = first_short_slot(nodes[0].capacity, demand)
        if unconstrained and slot is not None:
            count = counts.setdefault((RefusalKind.NEVER, slot), RefusalCount())
            count.add(nodes[0].capacity.get(slot, 0), nodes[0].agent.agent_id, len(nodes))
            continue

        if unconstrained and feasible.all_usable:
            _count_short_of_capacity(counts, node_class, demand, version)
            candidates.setdefault(RefusalKind.CAPACITY, []).extend(nodes)
            continue

        for node in nodes:
            kind = None if unconstrained else _session_restriction(item, node, quantized)
            if kind is None and slot is not None:
                _count(
                    counts,
                    RefusalKind.NEVER,
                    slot=slot,
                    available=node.capacity.get(slot, 0),
                    node=node,
                )
                continue

            kind = kind or unschedulable_reason(node.agent, direct=feasible.direct)
            if kind is None and node.agent.agent_id in item.avoid:
                kind = RefusalKind.AVOIDED

            if kind is None and not node.fits_when_empty(demand):
                kind = RefusalKind.UNHEALTHY
                healthy = node.healthy
                lacking = first_short_slot(healthy, demand) or ""
                _count(counts, kind, slot=lacking, available=healthy.get(lacking, 0), node=node)
                candidates.setdefault(kind, []).append(node)
                continue

            if kind is None:
                _count(counts, *_current_shortage(node, demand), node=node)
                candidates.setdefault(RefusalKind.CAPACITY, []).append(node)
                continue

            _count(counts, kind, slot="", available=0, node=node)
            if kind not in _PERMANENT:
                candidates.setdefault(kind, []).append(node)

    return _infeasibility(counts, candidates)


def _count_short_of_capacity(
    counts: RefusalCounts, node_class: NodeClass, demand: Demand, version: int
) -> None:
    """For each node, count the first slot of which it has too little free.

    The hot part of ``diagnose``: works on one list of integers per slot instead of node by node.
    """
    nodes = node_class.nodes
    for slot, amount in demand:
        if slot == KERNELS:
            break

        all_nodes = nodes is node_class.nodes
        free = (
            node_class.free_of(slot, version) if all_nodes else [n.free.get(slot, 0) for n in nodes]
        )
        short = [available for available in free if available < amount]
        if short:
            most = max(short)
            count = counts.setdefault((RefusalKind.CAPACITY, slot), RefusalCount())
            count.add(most, nodes[free.index(most)].agent.agent_id, len(short))
            if len(short) == len(nodes):
                return

            nodes = [
                node for node, available in zip(nodes, free, strict=True) if available >= amount
            ]

    for node in nodes:
        _count(counts, *_current_shortage(node, demand), node=node)


def _infeasibility(
    counts: RefusalCounts, candidates: dict[RefusalKind, list[NodeState]]
) -> Infeasibility:
    if not counts:
        none = {(RefusalKind.NO_ELIGIBLE_AGENT, ""): RefusalCount()}
        return Infeasibility(Reason.NO_ELIGIBLE_AGENT, none, [])

    if RefusalKind.CAPACITY in candidates:
        return Infeasibility(
            Reason.INSUFFICIENT_RESOURCES, counts, candidates[RefusalKind.CAPACITY]
        )

    too_large = {RefusalKind.NEVER, RefusalKind.SHARES}
    never = not candidates and any(kind in too_large for kind, _ in counts)
    if not never and not candidates and any(kind is RefusalKind.ISOLATION for kind, _ in counts):
        return Infeasibility(Reason.NOT_ISOLATED, counts, [])

    others = [node for nodes in candidates.values() for node in nodes]
    return Infeasibility(Reason.INFEASIBLE if never else Reason.NO_ELIGIBLE_AGENT, counts, others)


def _session_restriction(item: Pending, node: NodeState, quantized: bool) -> RefusalKind | None:
    """Permanent restrictions of the session. An avoided agent is counted only if the session would
    fit there."""
    if item.designated and node.agent.agent_id not in item.designated:
        return RefusalKind.DESIGNATED
    if quantized and item.shape.fractions and not node.supports_fractions(item.shape.fractions):
        return RefusalKind.SHARES
    return None


def _current_shortage(node: NodeState, demand: Demand) -> tuple[RefusalKind, str, int]:
    slot = first_short_slot(node.free, demand)
    if slot is None:
        return RefusalKind.RESERVED, node.reserved_for, 0
    if slot == KERNELS:
        return RefusalKind.KERNELS, "", node.agent.max_kernels or 0
    return RefusalKind.CAPACITY, slot, node.free.get(slot, 0)


def _count(
    counts: RefusalCounts, kind: RefusalKind, slot: str, available: int, *, node: NodeState
) -> None:
    counts.setdefault((kind, slot), RefusalCount()).add(available, node.agent.agent_id)


def _refusal(
    kind: RefusalKind, slot: str, amount: int, available: int, *, agents: int, best: AgentId | None
) -> Refusal:
    """Refusal in request units. A partly used device cannot serve a request for whole devices, so
    it is not counted there."""
    shown, (requested,) = in_request_units(slot, amount)
    return Refusal(
        kind,
        shown,
        requested=requested,
        available=available if shown == slot else available // WHOLE_DEVICE,
        agents=agents,
        best=best,
    )
