"""Agent cache: the agents of each resource group as the planner sees them, kept between passes.

Without it, a pass would read every slot of every agent to place one session. Agents that change are
announced by ``Notifier.notify_capacity``, and only those are read again. Because a notification may
be lost, all agents are also reread in small slices, in rounds of ``REREAD_S`` or longer. The cache
may be out of date, so committing a placement checks again.

Running kernels are read only while a session waits for capacity.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import AgentId
from moorage.manager.scheduling.core.model import AgentChanges, AgentState
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.scheduling import planner_rows

REREAD_S = 5.0
# Running kernels stay cached for this long after the last pass that needed them. Otherwise, they
# would all be read again whenever a replica starts, or a queue empties and refills.
RUNNING_KEPT_S = 1800.0
SLICES = 20  # reading a thousand agents at once would block the event loop for 0.1 s
# Maximum cost of one second of rereading, in agents. Reading this many running kernels costs as
# much as reading one agent. With more agents or running kernels, the round takes longer.
REREAD_PER_S = 40
REREAD_KERNELS = 10
# Maximum number of agents, and of running kernels, that are read together: more would block the
# event loop for too long.
READ_TOGETHER = 25
KERNELS_TOGETHER = 1_000


@dataclass(slots=True)
class _Group:
    """All times are in monotonic seconds.

    ``round_at``: start of the current reread round; ``to_reread``: its remaining agents;
    ``slice_size``: how many agents are read next; ``slice_at``: when the last slice was read.
    ``running_until``: running kernels are cached until then; 0 means not at all. ``used_at``: the
    last scheduling pass. ``touched``: the agents that have been read since then; ``number`` and
    ``values`` are those of the last pass.
    """

    agents: dict[AgentId, AgentState]
    round_at: float
    slice_at: float
    slice_size: int = 1
    to_reread: list[AgentId] = field(default_factory=list)
    running_until: float = 0.0
    used_at: float = 0.0
    touched: set[AgentId] = field(default_factory=set)
    number: int = 0
    values: tuple[AgentState, ...] | None = None

    def put(self, agent_id: AgentId, state: AgentState | None) -> None:
        """Store an agent; None if it is not in the group."""
        if state is not None:
            self.agents[agent_id] = state
        elif self.agents.pop(agent_id, None) is None:
            return
        self.touched.add(agent_id)

    def take_changes(self) -> tuple[tuple[AgentState, ...], AgentChanges]:
        if self.touched or self.values is None:
            self.values = tuple(self.agents.values())
        touched = self.touched
        self.touched = set()
        self.number = self.number + 1
        changed = tuple(
            self.agents[touched_id] for touched_id in touched if touched_id in self.agents
        )
        gone = tuple(touched_id for touched_id in touched if touched_id not in self.agents)
        return self.values, AgentChanges(self.number, changed, gone)


class AgentCache:
    def __init__(
        self, db: Database, notifier: Notifier, clock: Clock, unreadable: UnreadableRows
    ) -> None:
        self._db = db
        self._clock = clock
        self._unreadable = unreadable
        self._connection = db.dedicated_connection()
        self._groups: dict[str, _Group] = {}
        self._stale: set[AgentId] = set()
        self._being_read: set[AgentId] = set()
        self._together = 1  # agents in the next statement
        notifier.on_capacity(self.invalidate)

    def invalidate(self, agents: Collection[AgentId] | None) -> None:
        """Record that these agents may have changed; None means that any may have."""
        if agents is None:
            # Agents that are currently being read stay stale until the read is done.
            for group in self._groups.values():
                self._stale |= group.agents.keys()
                group.round_at = -inf  # the next use starts by reading the list of agents
                group.to_reread.clear()
        else:
            self._stale.update(agents)

    def includes_running(self, group: str) -> bool:
        cached = self._groups.get(group)
        return cached is not None and cached.running_until > 0

    async def of(
        self, group: str, *, with_running: bool = False
    ) -> tuple[tuple[AgentState, ...], AgentChanges]:
        """Agents of the group, and how they have changed since the last use. ``with_running``:
        include their running kernels. Raises ``StoreUnavailable``, in which case agents that could
        not be read stay stale."""
        now = self._clock.monotonic()
        cached = self._groups.get(group)
        if cached is None:
            rows = await self._connection.fetch(SQL["agent_states"], group)
            states = planner_rows.agent_states(rows, self._unreadable)
            cached = _Group({state.agent_id: state for state in states}, now, now)
            self._groups[group] = cached
        else:
            await self._schedule_rereads(group, cached, now)

        cached.used_at = now
        if with_running:
            if not cached.running_until:
                self._stale |= cached.agents.keys()
                self._together = 1

            cached.running_until = now + RUNNING_KEPT_S
        elif cached.running_until < now:
            cached.running_until = 0.0

        if self._stale:
            await self._read(self._stale)

        return cached.take_changes()

    async def peek(self, group: str) -> tuple[AgentState, ...] | None:
        """Agents with their running kernels, for a query outside the passes. Stale agents are read,
        but the cache is left as it is. None if the cache has no running kernels, or was last used
        ``REREAD_S`` ago."""
        cached = self._groups.get(group)
        if (
            cached is None
            or not cached.running_until
            or self._clock.monotonic() - cached.used_at > REREAD_S
        ):
            return None

        agents = dict(cached.agents)
        stale = self._stale | self._being_read
        if stale:
            kernel_rows = await self._db.fetch(SQL["agent_running_kernels"], list(stale), [group])
            found = await self._db.fetch(SQL["agent_states_by_id"], list(stale))
            rows = [row for row in found if row["resource_group"] == group]
            running = planner_rows.running_kernels(kernel_rows, self._unreadable)
            states = planner_rows.agent_states(rows, self._unreadable, running)
            for agent_id in stale:
                agents.pop(agent_id, None)

            agents.update({state.agent_id: state for state in states})

        return tuple(agents.values())

    async def _schedule_rereads(self, group: str, cached: _Group, now: float) -> None:
        if now - cached.round_at >= REREAD_S and not cached.to_reread:
            current = {
                AgentId(row["id"]) for row in await self._connection.fetch(SQL["agent_ids"], group)
            }
            # Agents that appeared or disappeared without a notification are read immediately; the
            # others are read in slices.
            self._stale |= current ^ cached.agents.keys()
            cached.to_reread = sorted(current.intersection(cached.agents))
            cached.slice_size = -(-len(cached.to_reread) // SLICES)
            cached.round_at = now

        if cached.to_reread and now - cached.slice_at >= REREAD_S / SLICES:
            budget = REREAD_PER_S * min(now - cached.slice_at, REREAD_S)
            cached.slice_at = now
            part = cached.to_reread[: cached.slice_size]
            known = (cached.agents.get(agent_id) for agent_id in part)
            costs = accumulate(
                1 + len(agent.running) / REREAD_KERNELS if agent else 0 for agent in known
            )
            part = part[: max(1, sum(cost <= budget for cost in costs))]
            self._stale.update(part)
            del cached.to_reread[: len(part)]

    async def _read(self, stale: set[AgentId]) -> None:
        remaining = list(stale)
        self._stale = set()
        self._being_read = stale

        try:
            while remaining:
                part = remaining[: self._together]
                kernels = await self._read_some(part)
                most = max(1, len(part) * KERNELS_TOGETHER // max(kernels, 1))
                self._together = min(most, 2 * self._together, READ_TOGETHER)
                del remaining[: len(part)]
        finally:
            self._being_read = set()
            self._stale.update(remaining)

    async def _read_some(self, stale: list[AgentId]) -> int:
        """Read some agents. Returns the number of running kernels that were read."""
        with_running = [name for name, cached in self._groups.items() if cached.running_until]

        # Running kernels are read before the free amounts: if a kernel ends in between, its devices
        # count as both held and free for one pass. In the other order, they would count as neither,
        # and another session would be preempted.
        args = stale, with_running
        kernel_rows = (
            await self._connection.fetch(SQL["agent_running_kernels"], *args)
            if with_running
            else []
        )
        rows = await self._connection.fetch(SQL["agent_states_by_id"], stale)
        running = planner_rows.running_kernels(kernel_rows, self._unreadable)
        group_of = {AgentId(row["id"]): row["resource_group"] for row in rows}
        found = planner_rows.agent_states(rows, self._unreadable, running)
        states = {state.agent_id: state for state in found}
        for name, cached in self._groups.items():
            for agent_id in stale:
                cached.put(
                    agent_id, states.get(agent_id) if group_of.get(agent_id) == name else None
                )

        return len(kernel_rows)
