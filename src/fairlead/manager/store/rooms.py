"""The agents of each resource group as the planner sees them, kept between passes.

A pass would else read every slot of every agent to place one session. What changes an agent rings for it
(``Bell.ring_room``) and only those are read again; everything is, every ``REREAD_S``, should a ring have been
lost. What is kept may be out of date: the commit of a placement checks again, and refuses.
"""

from __future__ import annotations

from collections.abc import Collection

from fairlead.common.clock import Clock
from fairlead.common.errors import StoreUnavailable
from fairlead.common.ids import AgentId
from fairlead.manager.scheduling import AgentState
from fairlead.manager.store import rows
from fairlead.manager.store.bell import Bell
from fairlead.manager.store.db import Database
from fairlead.manager.store.queries import SQL

REREAD_S = 5.0


class Rooms:
    """``of(group)`` reads what may have changed, and gives the group's agents."""

    def __init__(self, db: Database, bell: Bell, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._groups: dict[str, dict[AgentId, AgentState]] = {}
        self._read_at: dict[str, float] = {}
        self._stale: set[AgentId] = set()
        bell.on_room(self.changed)

    def changed(self, agents: Collection[AgentId] | None) -> None:
        """These have more or less room, or are otherwise not as they were. None: any may."""
        if agents is None:
            self._read_at.clear()
        else:
            self._stale.update(agents)

    async def of(self, group: str) -> tuple[AgentState, ...]:
        """Raises ``StoreUnavailable``; then nothing is taken for known that was not read."""
        now = self._clock.monotonic()
        if now - self._read_at.get(group, float("-inf")) >= REREAD_S:
            self._read_at.pop(group, None)
            found = await self._db.fetch(SQL["agent_states"], group)
            self._groups[group] = {state.agent_id: state for state in rows.agent_states(found)}
            self._read_at[group] = now
        if self._stale:
            await self._read(self._stale)
        return tuple(self._groups[group].values())

    async def _read(self, stale: set[AgentId]) -> None:
        self._stale = set()
        try:
            found = await self._db.fetch(SQL["agent_states_of"], list(stale))
        except StoreUnavailable:
            self._stale |= stale
            raise
        group_of = {AgentId(row["id"]): row["resource_group"] for row in found}
        states = {state.agent_id: state for state in rows.agent_states(found)}
        for name, known in self._groups.items():
            for agent_id in stale:
                if group_of.get(agent_id) == name:
                    known[agent_id] = states[agent_id]
                else:
                    known.pop(agent_id, None)
