"""Agents in Postgres: what they should run, what becomes of silent ones, and how they look."""

from __future__ import annotations

from collections.abc import Collection

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.views import resources
from moorage.manager.store import rows
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL
from moorage.manager.store.reports import Reports


class Agents(Reports):
    """Part of ``Store``."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        super().__init__(db, notifier, clock)
        self._orders_line = db.line()
        # What kernels are, by the agent that should have them: see ``orders_for_many``.
        self._ordered: dict[AgentId, dict[KernelId, KernelSpec]] = {}

    async def orders_for(self, agent_id: AgentId) -> tuple[KernelSpec, ...]:
        """The whole set of kernels that should exist there."""
        return (await self.orders_for_many([agent_id]))[agent_id]

    async def orders_for_many(self, agent_ids: Collection[AgentId]) -> dict[AgentId, tuple[KernelSpec, ...]]:
        """The same for several: one query, and one more if there are kernels that were not asked for before.

        What a kernel is never changes after its placement, so it is read once and remembered for as long as
        its agent should have it. An agent without kernels has an entry too.
        """
        wanted: dict[AgentId, list[KernelId]] = {agent_id: [] for agent_id in agent_ids}
        for row in await self._orders_line.fetch(SQL["agent_wanted"], list(wanted)):
            wanted[AgentId(row["agent_id"])].append(KernelId(row["id"]))
        known = {a: self._ordered.get(a, {}) for a in wanted}
        unknown = [k for a, kernels in wanted.items() for k in kernels if k not in known[a]]
        fresh: dict[KernelId, KernelSpec] = {}
        if unknown:
            fresh = {
                KernelId(row["id"]): rows.kernel_spec(row)
                for row in await self._orders_line.fetch(SQL["agent_orders"], unknown)
            }
        found = {}
        for agent_id, kernels in wanted.items():
            specs = {k: spec for k in kernels if (spec := known[agent_id].get(k) or fresh.get(k))}
            found[agent_id] = tuple(specs.values())
            if specs:
                self._ordered[agent_id] = specs
            else:
                self._ordered.pop(agent_id, None)
        return found

    async def next_generation(self) -> int:
        """A number greater than every one given before, by any manager."""
        return int((await self._orders_line.fetch(SQL["generation_next"]))[0]["generation"])

    async def mark_silent(self, suspect_after_s: float, lost_grace_s: float) -> list[tuple[str, str]]:
        """Mark agents SUSPECT or LOST by their silence, and give up the kernels of lost ones."""
        changed = await self._report_line.fetch(SQL["agents_silent"], suspect_after_s, lost_grace_s)
        await self._give_up([AgentId(row["id"]) for row in changed])
        return [(row["id"], row["status"]) for row in changed]

    async def _give_up(self, silent: Collection[AgentId]) -> None:
        lost = await self._report_line.fetch(SQL["kernels_lost"])
        self._look_again(silent)
        self._notifier.notify_capacity(silent)
        self._notifier.notify_kernels({SessionId(row["session_id"]) for row in lost})
        if silent or lost:
            self._notifier.notify([Topic.ROUTES])

    async def forget_agent(self, agent_id: str, *, actor: str) -> resources.AgentView:
        """Give up a silent agent, its kernels with it; whoever comes under its id is taken in. Returns it as
        it was. Raises ``NotFound``, or ``Conflict`` while it is alive."""
        view = await self.get_agent(agent_id)
        if not await self._report_line.fetch(SQL["agent_forget"], agent_id, actor):
            raise Conflict(
                f"agent {agent_id!r} is ALIVE, and only one that is SUSPECT or LOST can be forgotten",
                next_step="stop it first, and wait manager.suspect_after_s",
            )
        await self._give_up([AgentId(agent_id)])
        self._notifier.notify([Topic.PEERS])
        return view

    async def cordon_agent(
        self, agent_id: str, *, actor: str, drain: bool = False, stop_after_s: float | None = None
    ) -> resources.AgentView:
        """Nothing new goes there. ``drain``: replicas are replaced elsewhere, and what is left after
        ``stop_after_s`` seconds is stopped or moved (None: it may end by itself). Raises ``NotFound``."""
        return await self._set_cordon(agent_id, "drain" if drain else "cordon", stop_after_s, actor)

    async def uncordon_agent(self, agent_id: str, *, actor: str) -> resources.AgentView:
        """It gets new work again. Raises ``NotFound``."""
        return await self._set_cordon(agent_id, "", None, actor)

    async def _set_cordon(
        self, agent_id: str, cordon: str, stop_after_s: float | None, actor: str
    ) -> resources.AgentView:
        view = await self.get_agent(agent_id)
        if not await self._report_line.fetch(SQL["agent_cordon"], agent_id, cordon, stop_after_s, actor):
            raise NotFound(f"no agent {agent_id!r}", next_step="`moorage agents` lists them")
        self._notifier.notify_capacity([AgentId(view.id)])
        self._notifier.notify([Topic.ENDPOINTS, Topic.PENDING])
        return await self.get_agent(agent_id)

    async def left_on_drained(self) -> list[tuple[SessionId, AgentId, str]]:
        """Sessions that are left on agents after the deadline of their drain: which, where, and who asked."""
        found = await self._db.fetch(SQL["drain_left"])
        return [(SessionId(r["session_id"]), AgentId(r["agent_id"]), r["cordoned_by"]) for r in found]

    async def agent_history(self, agent_id: str, limit: int = 50) -> list[resources.AgentEvent]:
        """What was done to an agent, newest first. Raises ``NotFound``."""
        await self.get_agent(agent_id)
        found = await self._db.fetch(SQL["agent_history"], agent_id, limit)
        return [resources.AgentEvent.model_validate(dict(row)) for row in found]

    async def forget_agent_history(self, days: int) -> None:
        await self._report_line.fetch(SQL["agent_history_sweep"], days)

    async def list_agents(self) -> list[resources.AgentView]:
        return [rows.agent_view(row) for row in await self._db.fetch(SQL["agent_list"], None)]

    async def get_agent(self, agent_id: str) -> resources.AgentView:
        row = await self._db.fetchrow(SQL["agent_list"], agent_id)
        if row is None:
            raise NotFound(f"no agent {agent_id!r}", next_step="`moorage agents` lists them")
        return rows.agent_view(row)
