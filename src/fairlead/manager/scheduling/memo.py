"""What was refused in this pass and need not be tried again.

Free room only shrinks during a pass, so a request for at least as much as one that was refused, by a session
of the same kind, is refused too. Ten thousand sessions that do not fit then cost a comparison each instead of
a look at every agent.
"""

from __future__ import annotations

from fairlead.common.ids import SessionId
from fairlead.common.reasons import Reason
from fairlead.manager.scheduling.answer import Refusal
from fairlead.manager.scheduling.crowd import Verdict
from fairlead.manager.scheduling.demand import Demand, dominates
from fairlead.manager.scheduling.model import Pending

# Shapes of request that are compared for dominance, per kind of session; more would cost what they save.
_MAX_SMALLEST = 64


class Answer:
    """Why a shape got nothing. ``guards``: that many kept agents had no room for it either, whoever asks.
    ``denied``: by whether it ends in time, when the room that is kept was last asked for, and by whom it is
    kept."""

    __slots__ = ("capacity", "denied", "guards", "reason", "refusals")

    def __init__(self, verdict: Verdict, refusals: tuple[Refusal, ...]) -> None:
        self.reason, self.refusals, self.guards = verdict.reason, refusals, 0
        self.denied: dict[tuple[bool, ...], tuple[int, SessionId]] = {}
        self.capacity = verdict.reason is Reason.NO_CAPACITY


class NoFit:
    """The refusals of one pass. ``grained``: devices are given in certain parts only, so that a larger
    request may be one that is given when a smaller one is not."""

    def __init__(self, grained: bool) -> None:
        self._grained = grained
        self._exact: dict[object, Answer] = {}
        self._smallest: dict[object, list[tuple[Demand, Verdict]]] = {}

    def known(self, item: Pending) -> Answer | None:
        return self._exact.get(self._name(item))

    def find(self, item: Pending, demand: Demand) -> Answer | None:
        """The answer to ``item`` if one that asked for as much or less was refused already."""
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
