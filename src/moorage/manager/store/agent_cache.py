"""The agents of each resource group as the planner sees them, kept between passes.

A pass would else read every slot of every agent to place one session. What changes an agent notifications
for it
(``Notifier.notify_capacity``) and only those are read again; should a notify have been lost, every other is
in its turn,
a slice at a time, within ``REREAD_S``. What is kept may be out of date: the commit of a placement checks
again, and refuses.

What runs on them, and until when, is asked for only while somebody waits for room.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId
from moorage.manager.scheduling import AgentState
from moorage.manager.store import rows
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier
from moorage.manager.store.queries import SQL

REREAD_S = 5.0
# So long what runs stays in view when nobody asks any more: else a queue that comes and goes reads it anew.
VIEW_S = 30.0
SLICES = 20  # a thousand agents read at once hold up everything else for a tenth of a second


@dataclass(slots=True)
class _Group:
    """``turn``: those that are still to be read again in this round, which began at ``round_at``.
    ``view_until``: so long what runs on them is read too; 0: it is not. ``asked_at``: for the last pass."""

    agents: dict[AgentId, AgentState]
    round_at: float
    slice_at: float
    slice: int = 1
    turn: list[AgentId] = field(default_factory=list)
    view_until: float = 0.0
    asked_at: float = 0.0


class Rooms:
    """``of(group)`` reads what may have changed, and gives the group's agents."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._line = db.line()
        self._groups: dict[str, _Group] = {}
        self._stale: set[AgentId] = set()
        self._reading: set[AgentId] = set()
        notifier.on_capacity(self.changed)

    def changed(self, agents: Collection[AgentId] | None) -> None:
        """These have more or less room, or are otherwise not as they were. None: any may."""
        if agents is None:
            # They stay what they are to whoever is just reading them.
            for known in self._groups.values():
                self._stale |= known.agents.keys()
                known.round_at = -inf  # and who is there at all is asked first
        else:
            self._stale.update(agents)

    def in_view(self, group: str) -> bool:
        """Whether what runs there is known too."""
        known = self._groups.get(group)
        return known is not None and known.view_until > 0

    async def of(self, group: str, *, view: bool = False) -> tuple[AgentState, ...]:
        """``view``: with what runs on them. Raises ``StoreUnavailable``; then nothing is taken for known that
        was not read."""
        now = self._clock.monotonic()
        known = self._groups.get(group)
        if known is None:
            found = rows.agent_states(await self._line.fetch(SQL["agent_states"], group))
            known = _Group({state.agent_id: state for state in found}, now, now)
            self._groups[group] = known
        else:
            await self._take_turns(group, known, now)
        known.asked_at = now
        if view:
            if not known.view_until:
                self._stale |= known.agents.keys()
            known.view_until = now + VIEW_S
        elif known.view_until < now:
            known.view_until = 0.0
        if self._stale:
            await self._read(self._stale)
        return tuple(known.agents.values())

    async def glance(self, group: str) -> tuple[AgentState, ...] | None:
        """The agents with what runs on them, for a question beside the passes: what may have changed since
        the last one is read, and nothing that is kept changes. None: nothing is kept that would do, as there
        was no pass for ``REREAD_S``, or none that had to know what runs."""
        known = self._groups.get(group)
        if known is None or not known.view_until or self._clock.monotonic() - known.asked_at > REREAD_S:
            return None
        agents, stale = dict(known.agents), self._stale | self._reading
        if stale:
            found = await self._db.fetch(SQL["agent_states_of"], list(stale))
            here = [row for row in found if row["resource_group"] == group]
            kernels = rows.running(await self._db.fetch(SQL["agent_running"], [row["id"] for row in here]))
            for agent_id in stale:
                agents.pop(agent_id, None)
            agents.update({state.agent_id: state for state in rows.agent_states(here, kernels)})
        return tuple(agents.values())

    async def _take_turns(self, group: str, known: _Group, now: float) -> None:
        if now - known.round_at >= REREAD_S:
            there = {AgentId(row["id"]) for row in await self._line.fetch(SQL["agent_ids"], group)}
            # Those that came and went without a notify at once, the others in their turn.
            self._stale |= there ^ known.agents.keys()
            known.turn = [*known.turn, *sorted(there.intersection(known.agents).difference(known.turn))]
            known.slice, known.round_at = -(-len(known.turn) // SLICES), now
        if known.turn and now - known.slice_at >= REREAD_S / SLICES:
            known.slice_at = now
            self._stale.update(known.turn[: known.slice])
            del known.turn[: known.slice]

    async def _read(self, stale: set[AgentId]) -> None:
        self._stale, self._reading = set(), stale
        try:
            found = await self._line.fetch(SQL["agent_states_of"], list(stale))
            viewed = {name for name, known in self._groups.items() if known.view_until}
            who = [row["id"] for row in found if row["resource_group"] in viewed]
            kernels = rows.running(await self._line.fetch(SQL["agent_running"], who)) if who else {}
        except StoreUnavailable:
            self._stale |= stale
            raise
        finally:
            self._reading = set()
        group_of = {AgentId(row["id"]): row["resource_group"] for row in found}
        states = {state.agent_id: state for state in rows.agent_states(found, kernels)}
        for name, known in self._groups.items():
            for agent_id in stale:
                if group_of.get(agent_id) == name:
                    known.agents[agent_id] = states[agent_id]
                else:
                    known.agents.pop(agent_id, None)
