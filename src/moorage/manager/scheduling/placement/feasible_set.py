"""The agents that can run a kind of session, and in detail why the others cannot."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.ids import AgentId
from moorage.common.model.kernel import IMAGED
from moorage.common.model.reasons import Reason
from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.demand import Demand, as_asked
from moorage.manager.scheduling.core.model import AgentState, CapacityClass, Pending
from moorage.manager.scheduling.core.results import Refusal, RefusalKind
from moorage.manager.scheduling.core.shape import NodeConstraints, Shape
from moorage.manager.scheduling.placement.free_capacity import KERNELS, NodeState, short_of


class Count:
    """``had``: the most that any of ``agents`` had; ``best``: which one that was."""

    __slots__ = ("agents", "available", "best")

    def __init__(self, had: int = 0, agents: int = 0, best: AgentId | None = None) -> None:
        self.available, self.agents, self.best = had, agents, best

    def add(self, had: int, agent_id: AgentId, agents: int = 1) -> None:
        if self.best is None or had > self.available or (had == self.available and agent_id < self.best):
            self.available, self.best = had, agent_id
        self.agents += agents


Counts = dict[tuple[RefusalKind, str], Count]
_ELSEWHERE = frozenset(
    {
        RefusalKind.RUNTIME,
        RefusalKind.ENGINE,
        RefusalKind.ARCH,
        RefusalKind.LABELS,
        RefusalKind.DESIGNATED,
        RefusalKind.SHARES,
        RefusalKind.NEVER,
    }
)


def lacks(agent: AgentState, kind: NodeConstraints) -> tuple[RefusalKind, str] | None:
    """What ``agent`` would have to be otherwise, whatever its size: the refusal and the name of the thing."""
    if kind.runtime not in agent.runtimes:
        return RefusalKind.RUNTIME, kind.runtime
    if kind.engine not in agent.engines and kind.runtime not in IMAGED:
        return RefusalKind.ENGINE, kind.engine
    if kind.arch and agent.arch != kind.arch:
        return RefusalKind.ARCH, kind.arch
    for name, value in sorted(kind.labels):
        if agent.labels.get(name) != value:
            return RefusalKind.LABELS, f"{name}={value}"
    return None


def closed(agent: AgentState) -> RefusalKind | None:
    """Why it takes no new work at all for now."""
    if agent.fenced:
        return RefusalKind.FENCED
    if not agent.available:
        return RefusalKind.UNAVAILABLE
    return RefusalKind.DRAINING if agent.draining else None


class FeasibleSet:
    """All agents of a group as one kind of session sees them."""

    def __init__(self, rooms: list[NodeState], kind: NodeConstraints) -> None:
        self.serving: list[NodeState] = []
        self.lacking: Counts = {}
        runtime, engine, arch, labels = kind
        for room in rooms:
            agent = room.agent
            if runtime in agent.runtimes and engine in agent.engines and not arch and not labels:
                self.serving.append(room)
                continue
            found = lacks(agent, kind)
            if found is None:
                self.serving.append(room)
            else:
                self.lacking.setdefault(found, Count()).agents += 1
        self.open_to = [
            room
            for room in self.serving
            if (agent := room.agent).available and not agent.draining and not agent.fenced
        ]
        self.all_open = len(self.open_to) == len(self.serving)
        self.open_ranks = frozenset([room.rank for room in self.open_to])
        # By size, because who is too small is so whatever is free: most agents of a group are alike.
        sizes: dict[CapacityClass, list[NodeState]] = {}
        for room in self.serving:
            known = sizes.get(room.size)
            if known is None:
                known = sizes[room.size] = []
            known.append(room)
        self.sizes = [Like(rooms) for rooms in sizes.values()]


class Like:
    """Agents of one size, by their ids."""

    __slots__ = ("_columns", "_moves", "rooms")

    def __init__(self, rooms: list[NodeState]) -> None:
        self.rooms = rooms
        self._columns: dict[str, list[int]] = {}
        self._moves = -1

    def free(self, slot: str, moves: int) -> list[int]:
        """What each of them has free, as long as it is as it was (``moves``, see ``NodePool``)."""
        if self._moves != moves:
            self._columns.clear()
            self._moves = moves
        column = self._columns.get(slot)
        if column is None:
            column = self._columns[slot] = [room.free.get(slot, 0) for room in self.rooms]
        return column


def wanted(item: Pending, room: NodeState, grained: bool) -> bool:
    """Whether the session itself would go there, whatever is free. ``grained``: see ``NodePool``."""
    agent_id = room.agent.agent_id
    if agent_id in item.avoid or (item.designated and agent_id not in item.designated):
        return False
    return not grained or not item.shape.parts or room.gives(item.shape.parts)


@dataclass(slots=True)
class Infeasibility:
    """Why all agents refused a request. ``able``: those whose size decides if a larger one could ever fit."""

    reason: Reason
    counts: Counts
    able: list[NodeState]

    @property
    def reserved(self) -> bool:
        """Whether it would fit where room is kept for somebody."""
        return any(kind is RefusalKind.RESERVED for kind, _ in self.counts)

    def refusals(self, demand: Demand) -> tuple[Refusal, ...]:
        asked = dict(demand)
        return tuple(
            refusal(kind, slot, asked.get(slot, 0), count.available, count.agents, count.best)
            for (kind, slot), count in sorted(self.counts.items(), key=lambda entry: entry[0])
        )

    def holds_for(self, demand: Demand) -> bool:
        """Whether it answers a larger request too: that one might be too large for ever, and this one not."""
        if self.reason is Reason.INFEASIBLE or not self.able:
            return True
        for index, room in enumerate(self.able):
            if room.could_ever_fit(demand):
                # The next one asks the same agent first.
                self.able[0], self.able[index] = room, self.able[0]
                return True
        return False


def judge(
    crowd: FeasibleSet, item: Pending, shape: Shape, demand: Demand, grained: bool, moves: int
) -> Infeasibility:
    """Why none of them took ``item``: looks at every agent. ``grained`` and ``moves``: see ``NodePool``."""
    counts: Counts = dict(crowd.lacking)
    able: dict[RefusalKind, list[NodeState]] = {}
    plain = item.unconstrained and not (grained and shape.parts)
    for like in crowd.sizes:
        rooms = like.rooms
        slot = short_of(rooms[0].capacity, demand)
        if plain and slot is not None:
            count = counts.setdefault((RefusalKind.NEVER, slot), Count())
            count.add(rooms[0].capacity.get(slot, 0), rooms[0].agent.agent_id, len(rooms))
            continue
        if plain and crowd.all_open:
            _count_short(counts, like, demand, moves)
            able.setdefault(RefusalKind.CAPACITY, []).extend(rooms)
            continue
        for room in rooms:
            kind = None if plain else _unwanted(item, room, grained)
            if kind is None and slot is not None:
                _count(counts, RefusalKind.NEVER, slot, room.capacity.get(slot, 0), room)
                continue
            kind = kind or closed(room.agent)
            if kind is None and room.agent.agent_id in item.avoid:
                kind = RefusalKind.AVOIDED
            if kind is None:
                _count(counts, *_short_now(room, demand), room)
                able.setdefault(RefusalKind.CAPACITY, []).append(room)
                continue
            _count(counts, kind, "", 0, room)
            if kind not in _ELSEWHERE:
                able.setdefault(kind, []).append(room)
    return _verdict(counts, able)


def _count_short(counts: Counts, like: Like, demand: Demand, moves: int) -> None:
    """Of what each of them has too little now: the hot part of saying why not."""
    rooms = like.rooms
    for slot, amount in demand:
        if slot == KERNELS:
            break
        whole = rooms is like.rooms
        column = like.free(slot, moves) if whole else [room.free.get(slot, 0) for room in rooms]
        short = [had for had in column if had < amount]
        if short:
            most = max(short)
            count = counts.setdefault((RefusalKind.CAPACITY, slot), Count())
            count.add(most, rooms[column.index(most)].agent.agent_id, len(short))
            if len(short) == len(rooms):
                return
            rooms = [room for room, had in zip(rooms, column, strict=True) if had >= amount]
    for room in rooms:
        _count(counts, *_short_now(room, demand), room)


def _verdict(counts: Counts, able: dict[RefusalKind, list[NodeState]]) -> Infeasibility:
    if not counts:
        return Infeasibility(Reason.NO_ELIGIBLE_AGENT, {(RefusalKind.NO_ELIGIBLE_AGENT, ""): Count()}, [])
    if RefusalKind.CAPACITY in able:
        return Infeasibility(Reason.INSUFFICIENT_RESOURCES, counts, able[RefusalKind.CAPACITY])
    never = {RefusalKind.NEVER, RefusalKind.SHARES}
    others = [room for rooms in able.values() for room in rooms]
    too_large = not able and any(kind in never for kind, _ in counts)
    return Infeasibility(Reason.INFEASIBLE if too_large else Reason.NO_ELIGIBLE_AGENT, counts, others)


def _unwanted(item: Pending, room: NodeState, grained: bool) -> RefusalKind | None:
    """The lasting causes; that an agent is avoided counts only where it would fit."""
    if item.designated and room.agent.agent_id not in item.designated:
        return RefusalKind.DESIGNATED
    if grained and item.shape.parts and not room.gives(item.shape.parts):
        return RefusalKind.SHARES
    return None


def _short_now(room: NodeState, demand: Demand) -> tuple[RefusalKind, str, int]:
    slot = short_of(room.free, demand)
    if slot is None:
        return RefusalKind.RESERVED, room.kept_for, 0
    if slot == KERNELS:
        return RefusalKind.KERNELS, "", room.agent.max_kernels or 0
    return RefusalKind.CAPACITY, slot, room.free.get(slot, 0)


def _count(counts: Counts, kind: RefusalKind, slot: str, had: int, room: NodeState) -> None:
    counts.setdefault((kind, slot), Count()).add(had, room.agent.agent_id)


def refusal(
    kind: RefusalKind, slot: str, asked: int, had: int, agents: int, best: AgentId | None = None
) -> Refusal:
    """As people asked for it; the rest of a device is nothing to who wants whole ones."""
    shown, (amount,) = as_asked(slot, asked)
    return Refusal(kind, shown, amount, had if shown == slot else had // WHOLE_DEVICE, agents, best)
