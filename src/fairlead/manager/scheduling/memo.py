"""What was refused in this pass and need not be tried again.

Free room only shrinks during a pass, so a request for at least as much as one that was refused, by a session
of the same kind, is refused too. Ten thousand sessions that do not fit then cost a comparison each instead of
a look at every agent.
"""

from __future__ import annotations

from fairlead.common.ids import SessionId
from fairlead.common.reasons import Reason
from fairlead.manager.scheduling.answer import Refusal
from fairlead.manager.scheduling.choose import Bench
from fairlead.manager.scheduling.crowd import Verdict
from fairlead.manager.scheduling.demand import Demand, dominates
from fairlead.manager.scheduling.model import Pending
from fairlead.manager.scheduling.shape import Shape
from fairlead.manager.scheduling.stock import Room

# Shapes of request that are compared for dominance, per kind of session; more would cost what they save.
_MAX_SMALLEST = 64


class Answer:
    """Why a shape got nothing. ``guards``: that many kept agents had no room for it either, whoever asks.
    ``denied``: by whether it ends in time, when the room that is kept was last asked for, and by whom it is
    kept. ``but_on``: kept agents that it was not looked for on."""

    __slots__ = ("but_on", "capacity", "denied", "guards", "reason", "refusals")

    def __init__(self, verdict: Verdict, refusals: tuple[Refusal, ...]) -> None:
        self.reason, self.refusals, self.guards = verdict.reason, refusals, 0
        self.but_on: frozenset[int] = frozenset()
        self.denied: dict[tuple[bool, ...], tuple[int, SessionId]] = {}
        self.capacity = verdict.reason is Reason.NO_CAPACITY


class NoFit:
    """The refusals of one pass. ``grained``: devices are given in certain parts only, so that a larger
    request may be one that is given when a smaller one is not."""

    def __init__(self, grained: bool) -> None:
        self._grained = grained
        self._exact: dict[object, Answer] = {}
        self._smallest: dict[object, list[tuple[Demand, Verdict]]] = {}
        # Between passes: what was said to whom last, who may be taken by the agents in ``hot`` alone.
        self._before: dict[Shape, Answer] = {}
        self._hot: list[Room] = []
        self._loose: set[Shape] = set()

    def known(self, item: Pending) -> Answer | None:
        return self._exact.get(self._name(item))

    def find(self, item: Pending, demand: Demand) -> Answer | None:
        """The answer to ``item`` if one that asked for as much or less was refused already."""
        if not self._exact:
            return None
        if known := self.known(item):
            return known
        for smaller, verdict in self._smallest.get(self._class(item), ()):
            if dominates(demand, smaller) and verdict.holds_for(demand):
                return self._keep(item, demand, verdict)
        return None

    def add(self, item: Pending, demand: Demand, verdict: Verdict) -> Answer:
        """Where room is kept, it is not the size alone that decides, and a larger one must ask again."""
        if verdict.reserved:
            return self._keep(item, demand, verdict)
        smallest = self._smallest.setdefault(self._class(item), [])
        # Never-fits says nothing of what is free now, so it must not push out one that does.
        never = verdict.reason is Reason.NEVER_FITS
        smallest[:] = [
            row
            for row in smallest
            if (row[1].reason is Reason.NEVER_FITS) != never or not dominates(row[0], demand)
        ]
        if len(smallest) < _MAX_SMALLEST:
            smallest.append((demand, verdict))
        return self._keep(item, demand, verdict)

    def forget(self, rooms: list[Room], bench: Bench) -> None:
        """What may be otherwise since these agents changed; for the next pass, with its own guards.

        Who is forgotten by this and nothing else was refused by all others, and is so still: ``hot`` says
        which agents it has to ask.
        """
        self._hot, self._loose = rooms, set()
        for name, answer in list(self._exact.items()):
            answer.guards = 0
            if answer.denied:
                answer.denied.clear()
            if isinstance(name, Shape):
                demand, ranks = bench.demand(name.total), bench.crowd(name.kind).open_ranks
                for room in rooms:
                    if room.rank in ranks and room.rank not in answer.but_on and room.fits(demand):
                        self._before[name] = self._exact.pop(name)
                        self._loose.add(name)
                        break
            else:
                del self._exact[name]
        for smallest in self._smallest.values():
            smallest[:] = [row for row in smallest if not any(room.fits(row[0]) for room in rooms)]

    def hot(self, shape: Shape) -> list[Room] | None:
        """The only agents that may take it; None: any may."""
        return self._hot if self._loose and shape in self._loose else None

    def again(self, item: Pending) -> Answer | None:
        """It was refused once more: the answer of last time, if there is one, is the answer. Its reason is
        that still; its numbers may be a little old."""
        old = self._before.get(item.shape) if item.plain else None
        if old is not None:
            self._loose.discard(item.shape)
            old.guards, old.but_on = 0, frozenset()
            old.denied.clear()
            self._exact[item.shape] = old
        return old

    def blocks(self, shape: Shape) -> Answer | None:
        return self._exact.get(shape)

    def _keep(self, item: Pending, demand: Demand, verdict: Verdict) -> Answer:
        answer = self._exact[self._name(item)] = Answer(verdict, verdict.refusals(demand))
        return answer

    def _name(self, item: Pending) -> object:
        if item.avoid or item.designated:
            return item.shape, item.avoid, item.designated
        return item.shape

    def _class(self, item: Pending) -> object:
        parts = item.shape.parts if self._grained else ()
        return item.shape.kind, item.avoid, item.designated, parts
