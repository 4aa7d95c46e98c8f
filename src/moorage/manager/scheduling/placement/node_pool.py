"""Node pool: the agents of a group while a plan is made, and the choice among feasible agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from moorage.common.model.ids import AgentId
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import AgentState, Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.shape import NodeConstraints, Shape
from moorage.manager.scheduling.placement.feasible_set import FeasibleSet, accepts_node
from moorage.manager.scheduling.placement.free_capacity import KERNELS, Allocations
from moorage.manager.scheduling.placement.node_state import NodeState
from moorage.manager.scheduling.placement.resource_request import ResourceRequest
from moorage.manager.scheduling.placement.round_robin import RoundRobin
from moorage.manager.scheduling.placement.score_index import ScoreIndex
from moorage.manager.scheduling.placement.selector_plugin import Candidate, Selector, select_agent


class NodePool:
    """``nodes`` are sorted by agent id; a node's ``rank`` is its index.

    ``count_kernels``: some agent limits its number of kernels, so demands include it.
    ``quantized``: some agent restricts the fractions of its devices. ``version`` grows with every
    change of free capacity. ``allocated_nodes``: nodes on which this pass has allocated something.
    """

    def __init__(
        self,
        agents: Iterable[AgentState],
        policy: Policy,
        cursors: Mapping[str, AgentId] | None = None,
        selectors: Mapping[str, Selector] | None = None,
    ) -> None:
        states = sorted(agents, key=lambda agent: agent.agent_id)
        self.count_kernels = any(state.max_kernels is not None for state in states)
        self.quantized = any(state.packed.quantized for state in states)
        self.nodes = [
            NodeState(state, rank, self.count_kernels) for rank, state in enumerate(states)
        ]
        self.cursors: dict[str, str] = dict(cursors or {})
        self.allocated_nodes: list[NodeState] = []
        self.version = 0
        self._policy = policy
        self._selector = (selectors or {}).get(policy.custom or "")
        self._index = ScoreIndex(
            self.nodes, policy.agent_selection == "dispersed", policy.slot_priority
        )
        round_robin = policy.agent_selection == "round-robin"
        self._round_robin = RoundRobin(self.nodes, self.cursors) if round_robin else None
        self._feasible_sets: dict[NodeConstraints, FeasibleSet] = {}
        self._requests: dict[Shape, ResourceRequest] = {}

        # Sessions on the fast path take the best node of the score index, without further
        # conditions.
        self.fast_path = not (round_robin or policy.custom or self.quantized or self.count_kernels)

    def feasible_set(self, constraints: NodeConstraints) -> FeasibleSet:
        found = self._feasible_sets.get(constraints)
        if found is None:
            found = self._feasible_sets[constraints] = FeasibleSet(self.nodes, constraints)
        return found

    def request(self, shape: Shape) -> ResourceRequest:
        found = self._requests.get(shape)
        if found is None:
            demand = self.with_kernels(shape.total)
            feasible = self.feasible_set(shape.constraints)
            found = ResourceRequest(shape, demand, self._index.view(shape), feasible)
            self._requests[shape] = found
        return found

    def with_kernels(self, demand: Demand, kernels: int = 1) -> Demand:
        """``demand``, plus the number of kernels if that is limited."""
        return (*demand, (KERNELS, kernels)) if self.count_kernels else demand

    def candidates(self, item: Pending, demand: Demand) -> Iterator[NodeState]:
        """The unreserved nodes on which ``demand`` of ``item`` fits, best first."""
        shape = item.shape
        schedulable = self.feasible_set(shape.constraints).schedulable
        selection = self._round_robin or self._index.view(shape)
        found: Iterator[NodeState] = selection.candidates(shape, demand, schedulable)
        if item.avoid or item.designated or (self.quantized and shape.fractions):
            found = (node for node in found if accepts_node(item, node, self.quantized))
        if item.endpoint_id and self._policy.replicas != "none":
            return self._by_replicas(item.endpoint_id, found)

        return found

    def best_among(
        self, nodes: list[NodeState], request: ResourceRequest, item: Pending
    ) -> NodeState | None:
        """Choice for an unconstrained session that fits on no nodes other than ``nodes``."""
        able = [
            n
            for n in nodes
            if not n.reserved and n.rank in request.ranks and n.fits(request.demand)
        ]
        if len(able) < 2:
            return able[0] if able else None

        families = item.shape.families
        able.sort(key=lambda node: (len(node.families - families), request.view.key(node)))
        if item.endpoint_id and self._policy.replicas != "none":
            return next(self._by_replicas(item.endpoint_id, iter(able)))

        return able[0]

    def best(self, request: ResourceRequest) -> NodeState | None:
        """Choice for a session on the fast path, in a pool with ``fast_path``."""
        return (
            None if request.packed is None else request.view.best(request.segments, request.packed)
        )

    def choose(self, item: Pending, demand: Demand) -> NodeState | None:
        """Choose the unreserved node that is to take ``demand`` of ``item``. Raises
        ``SelectorFailed``."""
        if self.fast_path and item.fast_path:
            return self.best(self.request(item.shape))
        node = next(self.candidates(item, demand), None)
        if node is None or self._policy.custom is None:
            return node
        return self._ask_selector(item, demand, self._policy.custom)

    def _ask_selector(self, item: Pending, demand: Demand, selector: str) -> NodeState:
        nodes = {node.agent.agent_id: node for node in self.candidates(item, demand)}
        names = sorted(nodes)
        candidates = [Candidate(nodes[name].agent, dict(nodes[name].free)) for name in names]
        return nodes[select_agent(selector, self._selector, candidates, item)]

    def best_candidates(self, item: Pending, demand: Demand, count: int) -> list[NodeState]:
        return list(islice(self.candidates(item, demand), count))

    def assign(
        self, node: NodeState, allocations: Allocations, ends_at: int | None, kernels: int = 1
    ) -> None:
        """Allocate these devices and amounts of ``node`` until ``ends_at`` (None if unknown)."""
        node.deduct(allocations, kernels)
        self._allocated(node, allocations, ends_at)

    def allocate(self, node: NodeState, demand: Demand, ends_at: int | None) -> Allocations:
        """Choose devices of ``node`` for ``demand``, which must fit, and assign them."""
        allocations = node.allocate(demand, self._policy.fraction)
        self._allocated(node, allocations, ends_at)
        return allocations

    def allocate_request(
        self, node: NodeState, request: ResourceRequest, ends_at: int | None
    ) -> Allocations:
        """Like ``allocate``, for a session on the fast path."""
        self.version += 1
        allocations, exact = request.allocate_on(node, self._policy.fraction)
        if exact and request.packed is not None:
            self._index.subtract(node, request.view, request.packed)
        else:
            self._index.update(node)

        if not node.planned:
            self.allocated_nodes.append(node)

        node.planned += ((ends_at, allocations),)
        return allocations

    def _allocated(self, node: NodeState, allocations: Allocations, ends_at: int | None) -> None:
        self.version += 1
        if not node.planned:
            self.allocated_nodes.append(node)
        node.planned += ((ends_at, allocations),)
        self._index.update(node)

    def record_choice(self, item: Pending, node: NodeState) -> None:
        """Advance the state on which later choices depend: round-robin cursors and replica
        counts."""
        if self._round_robin is not None:
            self._round_robin.record_choice(item.shape, node)
        if item.endpoint_id:
            node.add_replica(item.endpoint_id)

    def reserve(self, node: NodeState, session_id: str) -> None:
        """Exclude ``node`` from the candidates: it is reserved for a session, and its guard decides
        which others may use it."""
        self._index.remove(node)
        node.reserved = True
        node.reserved_for = session_id

    def unreserve(self, node: NodeState) -> None:
        node.reserved = False
        node.reserved_for = ""
        self._index.restore(node)

    def reset(self, node: NodeState, agent: AgentState) -> None:
        """Adopt a newer state of the agent, with unchanged capacity and constraints."""
        self.version += 1
        node.reset(agent)
        self._index.update(node)

    def _by_replicas(self, endpoint_id: str, found: Iterator[NodeState]) -> Iterator[NodeState]:
        nodes: list[NodeState] = []
        for node in found:
            if self._policy.replicas == "spread" and not node.replicas_of(endpoint_id):
                yield node
            else:
                nodes.append(node)
        sign = 1 if self._policy.replicas == "spread" else -1
        yield from sorted(nodes, key=lambda node: sign * node.replicas_of(endpoint_id))
