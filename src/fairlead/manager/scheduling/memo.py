"""What was refused in this pass and need not be tried again.

Free room only shrinks during a pass, so a request for at least as much as one that was refused, by a session
with the same runtime, engine and avoided agents, is refused too. Ten thousand sessions that do not fit then
cost a comparison each instead of a look at every agent.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.common.reasons import Reason
from fairlead.manager.scheduling.answer import Refusal, RefusalKind
from fairlead.manager.scheduling.fit import Demand, Room, refusal
from fairlead.manager.scheduling.model import Pending

# Shapes of request that are compared for dominance, per kind of session; more would cost what they save.
_MAX_SMALLEST = 64

_ELSEWHERE = frozenset({RefusalKind.RUNTIME, RefusalKind.ENGINE, RefusalKind.NEVER})


@dataclass(slots=True)
class Verdict:
    """Why all agents refused a request. ``able``: those whose size decides if a larger one could ever fit."""

    reason: Reason
    counts: dict[tuple[RefusalKind, str], list[int]]  # [the most that any had, agents]
    able: list[Room]

    def refusals(self, demand: Demand) -> tuple[Refusal, ...]:
        asked = dict(demand)
        return tuple(
            refusal(kind, slot, asked.get(slot, 0), had, agents)
            for (kind, slot), (had, agents) in sorted(self.counts.items())
        )

    def holds_for(self, demand: Demand) -> bool:
        """Whether it answers a larger request too: that one might be too large for ever, and this one not."""
        if self.reason is Reason.NEVER_FITS or not self.able:
            return True
        for index, room in enumerate(self.able):
            if room.could_ever_fit(demand):
                # The next one asks the same agent first.
                self.able[0], self.able[index] = room, self.able[0]
                return True
        return False


def judge(rooms: list[Room], item: Pending, demand: Demand) -> Verdict:
    """Why none of ``rooms`` took ``item``: looks at every agent."""
    counts: dict[tuple[RefusalKind, str], list[int]] = {}
    able: dict[RefusalKind, list[Room]] = {}
    for room in rooms:
        kind = _kind(room, item, demand)
        kind, slot, had = room.refuse(kind, demand)
        slot = {RefusalKind.RUNTIME: item.runtime, RefusalKind.ENGINE: item.engine}.get(kind, slot)
        count = counts.setdefault((kind, slot), [0, 0])
        count[0], count[1] = max(count[0], had), count[1] + 1
        if kind not in _ELSEWHERE:
            able.setdefault(kind, []).append(room)
    if not rooms:
        return Verdict(Reason.NO_AGENT, {(RefusalKind.NO_AGENT, ""): [0, 0]}, [])
    if RefusalKind.CAPACITY in able:
        return Verdict(Reason.NO_CAPACITY, counts, able[RefusalKind.CAPACITY])
    never = not able and any(kind is RefusalKind.NEVER for kind, _ in counts)
    others = [room for rooms_of_kind in able.values() for room in rooms_of_kind]
    return Verdict(Reason.NEVER_FITS if never else Reason.NO_AGENT, counts, others)


def _kind(room: Room, item: Pending, demand: Demand) -> RefusalKind:
    """The lasting causes first: an agent too small stays too small when it comes back."""
    agent = room.agent
    if item.runtime not in agent.runtimes:
        return RefusalKind.RUNTIME
    if item.engine not in agent.engines:
        return RefusalKind.ENGINE
    if not room.could_ever_fit(demand):
        return RefusalKind.NEVER
    if not agent.available:
        return RefusalKind.UNAVAILABLE
    return RefusalKind.AVOIDED if agent.agent_id in item.avoid else RefusalKind.CAPACITY


class NoFit:
    """The refusals of one pass."""

    def __init__(self) -> None:
        self._exact: dict[tuple[object, Demand], tuple[Verdict, tuple[Refusal, ...]]] = {}
        self._smallest: dict[object, list[tuple[Demand, Verdict]]] = {}

    def find(self, item: Pending, demand: Demand) -> tuple[Verdict, tuple[Refusal, ...]] | None:
        """The answer to ``item`` if one that asked for as much or less was refused already."""
        kind = (item.runtime, item.engine, item.avoid)
        if known := self._exact.get((kind, demand)):
            return known
        for smaller, verdict in self._smallest.get(kind, ()):
            if _dominates(demand, smaller) and verdict.holds_for(demand):
                return self._keep(kind, demand, verdict)
        return None

    def add(self, item: Pending, demand: Demand, verdict: Verdict) -> tuple[Verdict, tuple[Refusal, ...]]:
        kind = (item.runtime, item.engine, item.avoid)
        smallest = self._smallest.setdefault(kind, [])
        # Never-fits says nothing of what is free now, so it must not push out one that does.
        never = verdict.reason is Reason.NEVER_FITS
        smallest[:] = [
            row
            for row in smallest
            if (row[1].reason is Reason.NEVER_FITS) != never or not _dominates(row[0], demand)
        ]
        if len(smallest) < _MAX_SMALLEST:
            smallest.append((demand, verdict))
        return self._keep(kind, demand, verdict)

    def _keep(self, kind: object, demand: Demand, verdict: Verdict) -> tuple[Verdict, tuple[Refusal, ...]]:
        answer = self._exact[kind, demand] = (verdict, verdict.refusals(demand))
        return answer


def _dominates(large: Demand, small: Demand) -> bool:
    asked = dict(large)
    return all(asked.get(slot, 0) >= amount for slot, amount in small)
