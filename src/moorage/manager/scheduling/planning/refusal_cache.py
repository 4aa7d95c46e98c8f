"""What was refused in this pass and need not be tried again.

Free room only shrinks during a pass, so a request for at least as much as one that was refused, by a session
of the same kind, is refused too. Ten thousand sessions that do not fit then cost a comparison each instead of
a look at every agent.
"""

from __future__ import annotations

from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.core.demand import Demand, dominates
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.results import HoldDetails, Refusal
from moorage.manager.scheduling.core.shape import Shape
from moorage.manager.scheduling.placement.feasible_set import Infeasibility
from moorage.manager.scheduling.placement.free_capacity import NodeState
from moorage.manager.scheduling.placement.node_pool import NodePool

# Shapes of request that are compared for dominance, per kind of session; more would cost what they save.
_MAX_SMALLEST = 64


class Answer:
    """Why a shape got nothing. ``guards``: that many kept agents had no room for it either, whoever asks.
    ``denied``: by whether it ends in time, when the room that is kept was last asked for, and by whom it is
    kept. ``but_on``: kept agents that it was not looked for on. ``body``: of a hold that says no more."""

    __slots__ = ("body", "but_on", "capacity", "denied", "guards", "reason", "refusals", "turn")

    def __init__(self, verdict: Infeasibility, refusals: tuple[Refusal, ...]) -> None:
        self.reason, self.refusals, self.guards = verdict.reason, refusals, 0
        self.but_on: frozenset[int] = frozenset()
        self.denied: dict[tuple[bool, ...], tuple[int, SessionId]] = {}
        self.capacity = verdict.reason is Reason.INSUFFICIENT_RESOURCES
        self.body: HoldDetails = (self.reason, refusals, True, self.capacity, None, ())
        self.turn = 0

    def renew(self, turn: int) -> None:
        """``guards`` and ``denied`` are those of this pass."""
        self.guards, self.turn = 0, turn
        self.denied.clear()


class RefusalCache:
    """The refusals of one pass. ``grained``: devices are given in certain parts only, so that a larger
    request may be one that is given when a smaller one is not."""

    def __init__(self, grained: bool) -> None:
        self._grained = grained
        self._exact: dict[object, Answer] = {}
        self._smallest: dict[object, list[tuple[Demand, Infeasibility]]] = {}
        # Who asks for less than all of the smallest, and how many there had been when that was found out.
        self._smaller: dict[Shape, int] = {}
        self._added = 0
        self.turn = 0  # which pass it is
        # Between passes: what was said to whom last, who may be taken by the agents in ``hot`` alone.
        self._before: dict[Shape, Answer] = {}
        self._hot: list[NodeState] = []
        self._loose: set[Shape] = set()

    def known(self, item: Pending) -> Answer | None:
        return self._exact.get(self._name(item))

    def find(self, item: Pending, demand: Demand) -> Answer | None:
        """The answer to ``item`` if one that asked for as much or less was refused already."""
        if not self._exact:
            return None
        if known := self.known(item):
            return known
        if item.unconstrained and self._smaller.get(item.shape) == self._added:
            return None
        for smaller, verdict in self._smallest.get(self._class(item), ()):
            if dominates(demand, smaller) and verdict.holds_for(demand):
                return self._keep(item, demand, verdict)
        if item.unconstrained:
            self._smaller[item.shape] = self._added
        return None

    def add(self, item: Pending, demand: Demand, verdict: Infeasibility) -> Answer:
        """Where room is kept, it is not the size alone that decides, and a larger one must ask again."""
        if verdict.reserved:
            return self._keep(item, demand, verdict)
        smallest = self._smallest.setdefault(self._class(item), [])
        self._added += 1
        # Never-fits says nothing of what is free now, so it must not push out one that does.
        never = verdict.reason is Reason.INFEASIBLE
        smallest[:] = [
            row
            for row in smallest
            if (row[1].reason is Reason.INFEASIBLE) != never or not dominates(row[0], demand)
        ]
        if len(smallest) < _MAX_SMALLEST:
            smallest.append((demand, verdict))
        return self._keep(item, demand, verdict)

    def forget(self, rooms: list[NodeState], bench: NodePool) -> list[Shape]:
        """What may be otherwise since these agents changed; for the next pass, with its own guards. Only for
        a memory of plain sessions.

        Who is forgotten by this and nothing else was refused by all others, and is so still: ``hot`` says
        which agents it has to ask. Returns the forgotten ones.
        """
        self._hot, self._loose = rooms, set()
        self.turn += 1
        may: list[Shape] = []
        for shape, answer in self._exact.items() if rooms else ():
            want = bench.want(shape)  # type: ignore[arg-type]
            for room in rooms:
                if room.fits(want.demand) and room.rank in want.ranks and room.rank not in answer.but_on:
                    may.append(shape)  # type: ignore[arg-type]
                    break
        for shape in may:
            answer = self._before[shape] = self._exact.pop(shape)
            if not answer.but_on:  # else those may take it as well, if they are kept for nobody now
                self._loose.add(shape)
        for smallest in self._smallest.values() if rooms else ():
            smallest[:] = [row for row in smallest if not any(room.fits(row[0]) for room in rooms)]
        return may

    def hot(self, shape: Shape) -> list[NodeState] | None:
        """The only agents that may take it; None: any may."""
        return self._hot if self._loose and shape in self._loose else None

    def again(self, shape: Shape) -> Answer | None:
        """It was refused once more: the answer of last time, if there is one, is the answer. Its reason is
        that still; its numbers may be a little old."""
        old = self._before.get(shape)
        if old is not None:
            self._loose.discard(shape)
            old.but_on = frozenset()
            old.renew(self.turn)
            self._exact[shape] = old
        return old

    def blocks(self, shape: Shape) -> Answer | None:
        return self._exact.get(shape)

    def _keep(self, item: Pending, demand: Demand, verdict: Infeasibility) -> Answer:
        answer = self._exact[self._name(item)] = Answer(verdict, verdict.refusals(demand))
        return answer

    def _name(self, item: Pending) -> object:
        if item.avoid or item.designated:
            return item.shape, item.avoid, item.designated
        return item.shape

    def _class(self, item: Pending) -> object:
        parts = item.shape.parts if self._grained else ()
        return item.shape.constraints, item.avoid, item.designated, parts
