"""Which agents take a session, of those that it fits on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from moorage.common.model.ids import AgentId
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import AgentState, Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.shape import NodeConstraints, Shape
from moorage.manager.scheduling.placement.feasible_set import FeasibleSet, wanted
from moorage.manager.scheduling.placement.free_capacity import KERNELS, NodeState, Takes
from moorage.manager.scheduling.placement.resource_request import ResourceRequest
from moorage.manager.scheduling.placement.score_index import Ring, ScoreIndex
from moorage.manager.scheduling.placement.selector_plugin import Candidate, Selector, ask


class NodePool:
    """All agents of a group while a plan is made."""

    def __init__(
        self,
        agents: Iterable[AgentState],
        policy: Policy,
        cursors: Mapping[str, AgentId] | None = None,
        selectors: Mapping[str, Selector] | None = None,
    ) -> None:
        states = sorted(agents, key=lambda agent: agent.agent_id)
        # Whether anybody limits the number of kernels, or the parts in which devices are given.
        self.limited = any(state.max_kernels is not None for state in states)
        self.grained = any(state.packed.grained for state in states)
        self.rooms = [NodeState(state, rank, self.limited) for rank, state in enumerate(states)]
        self.cursors: dict[str, str] = dict(cursors or {})
        self.booked: list[NodeState] = []  # those that something was taken of
        self.moves = 0  # grows with every change of what any of them has free
        self._policy = policy
        self._selector = (selectors or {}).get(policy.custom or "")
        self._lanes = ScoreIndex(self.rooms, policy.agent_selection == "dispersed", policy.slot_priority)
        self._notify = Ring(self.rooms, self.cursors) if policy.agent_selection == "round-robin" else None
        self._crowds: dict[NodeConstraints, FeasibleSet] = {}
        self._wants: dict[Shape, ResourceRequest] = {}
        self.counting = self._notify is not None  # whether it matters who was chosen
        # The first that fits is the one, without a further look, for who asks for no more than that.
        self.swift = self._notify is None and policy.custom is None and not self.grained and not self.limited

    def crowd(self, kind: NodeConstraints) -> FeasibleSet:
        found = self._crowds.get(kind)
        if found is None:
            found = self._crowds[kind] = FeasibleSet(self.rooms, kind)
        return found

    def want(self, shape: Shape) -> ResourceRequest:
        found = self._wants.get(shape)
        if found is None:
            demand, crowd = self.demand(shape.total), self.crowd(shape.constraints)
            lane, step = self._lanes.lane(shape, crowd.open_to), self._lanes.step(demand)
            found = self._wants[shape] = ResourceRequest(shape, demand, lane, step, crowd.open_ranks)
        return found

    def demand(self, demand: Demand, kernels: int = 1) -> Demand:
        """With the number of kernels, where that is limited."""
        return (*demand, (KERNELS, kernels)) if self.limited else demand

    def offers(self, item: Pending, demand: Demand) -> Iterator[NodeState]:
        """The agents that ``demand`` of ``item`` fits on and that are kept for nobody, the best first."""
        shape = item.shape
        open_to = self.crowd(shape.constraints).open_to
        order = self._notify or self._lanes
        found: Iterator[NodeState] = order.candidates(shape, demand, open_to)
        if item.avoid or item.designated or (self.grained and shape.parts):
            found = (room for room in found if wanted(item, room, self.grained))
        if item.endpoint_id and self._policy.replicas != "none":
            return self._by_replicas(item.endpoint_id, found)
        return found

    def choose_among(
        self, rooms: list[NodeState], want: ResourceRequest, families: frozenset[str]
    ) -> NodeState | None:
        """The same for a plain session that fits on no other agent than these."""
        able = [r for r in rooms if not r.guarded and r.rank in want.ranks and r.fits(want.demand)]
        if len(able) < 2:
            return able[0] if able else None
        return min(able, key=lambda r: (len(r.families - families), r.key))

    def first(self, want: ResourceRequest) -> NodeState | None:
        """The agent for a swift session, where all is ``swift``."""
        return None if want.step is None else self._lanes.first(want.lane, want.step)

    def choose(self, item: Pending, demand: Demand, but: Collection[int] = ()) -> NodeState | None:
        """The agent for ``demand``, of another rank than ``but``. Raises ``SelectorFailed``."""
        if self.swift and item.fast_path and not but:
            return self.first(self.want(item.shape))
        for room in self.offers(item, demand):
            if room.rank not in but:
                return room if self._policy.custom is None else self.ask(item, demand, but)
        return None

    def ask(self, item: Pending, demand: Demand, but: Collection[int] = ()) -> NodeState:
        rooms = {r.agent.agent_id: r for r in self.offers(item, demand) if r.rank not in but}
        names = sorted(rooms)
        candidates = [Candidate(rooms[name].agent, dict(rooms[name].free)) for name in names]
        return rooms[ask(self._policy.custom or "", self._selector, candidates, item)]

    def best(self, item: Pending, demand: Demand, count: int) -> list[NodeState]:
        return list(islice(self.offers(item, demand), count))

    def book(self, room: NodeState, takes: Takes, ends: int | None, kernels: int = 1) -> None:
        """``room`` gives ``takes`` away until ``ends`` (None: nobody knows)."""
        room.take(takes, kernels)
        self._booked(room, takes, ends)

    def grab(self, room: NodeState, demand: Demand, ends: int | None) -> Takes:
        """The same for ``demand``, which fits."""
        takes = room.grab(demand, self._policy.fraction)
        self._booked(room, takes, ends)
        return takes

    def seize(self, room: NodeState, want: ResourceRequest, ends: int | None) -> Takes:
        """The same for a swift session."""
        self.moves += 1
        takes, exact = want.seize(room, self._policy.fraction)
        if exact and want.step is not None:
            self._lanes.taken(room, want.step)
        else:
            self._lanes.moved(room)
        if not room.booked:
            self.booked.append(room)
        room.booked += ((ends, takes),)
        return takes

    def _booked(self, room: NodeState, takes: Takes, ends: int | None) -> None:
        self.moves += 1
        if not room.booked:
            self.booked.append(room)
        room.booked += ((ends, takes),)
        self._lanes.moved(room)

    def chosen(self, item: Pending, room: NodeState) -> None:
        """``item`` goes there: what the next choices go by."""
        if self._notify is not None:
            self._notify.chosen(item.shape, room)
        if item.endpoint_id:
            room.of_endpoint(item.endpoint_id)
            assert room.replicas is not None
            room.replicas[item.endpoint_id] = room.replicas.get(item.endpoint_id, 0) + 1

    def set_aside(self, room: NodeState, kept_for: str) -> None:
        """It is kept for a session, and offered to nobody any more: ask its guard."""
        self._lanes.remove(room)
        room.guarded, room.kept_for = True, kept_for

    def put_back(self, room: NodeState) -> None:
        room.guarded, room.kept_for = False, ""
        self._lanes.restore(room)

    def reset(self, room: NodeState, agent: AgentState) -> None:
        self.moves += 1
        room.reset(agent)
        self._lanes.moved(room)

    def _by_replicas(self, endpoint_id: str, found: Iterator[NodeState]) -> Iterator[NodeState]:
        rooms: list[NodeState] = []
        for room in found:
            if self._policy.replicas == "spread" and not room.of_endpoint(endpoint_id):
                yield room
            else:
                rooms.append(room)
        sign = 1 if self._policy.replicas == "spread" else -1
        yield from sorted(rooms, key=lambda room: sign * room.of_endpoint(endpoint_id))
