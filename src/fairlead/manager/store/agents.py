"""Agents in Postgres: what they report, what they should run, and what becomes of silent ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fairlead.common import api
from fairlead.common.errors import NotFound
from fairlead.common.ids import AgentId, KernelId, SessionId
from fairlead.common.messages import Report
from fairlead.common.spec import KernelSpec
from fairlead.common.status import ObservedState, Status
from fairlead.manager.lifecycle import KernelChange, kernel_changes
from fairlead.manager.store import rows
from fairlead.manager.store.bell import Bell, Topic
from fairlead.manager.store.db import Database
from fairlead.manager.store.queries import SQL


class Agents:
    """Part of ``Store``."""

    def __init__(self, db: Database, bell: Bell) -> None:
        self._db, self._bell = db, bell
        self._report_line = db.line()
        # What kernels are, by the agent that should have them: see ``orders_for_many``.
        self._ordered: dict[AgentId, dict[KernelId, KernelSpec]] = {}

    async def observe(self, report: Report, accepted: Collection[KernelId] | None) -> int:
        """Take in a whole report; returns how many kernels changed. The same report again changes nothing.

        ``accepted``: the kernels named by the orders that the report says it has taken in, if we know them.
        """
        agent_id = report.info.agent_id
        fresh = await self._heard(report)
        stored = [
            (KernelId(row["id"]), SessionId(row["session_id"]), Status(row["status"]))
            for row in await self._report_line.fetch(SQL["agent_kernels"], agent_id)
        ]
        changes = kernel_changes(stored, {k.kernel_id: k for k in report.kernels}, accepted)
        if changes:
            await self._write_changes(agent_id, changes)
        ended = (ObservedState.EXITED, ObservedState.GONE)
        alive = [k.kernel_id for k in report.kernels if k.state not in ended]
        freed = (await self._report_line.fetch(SQL["allocation_release"], agent_id, alive))[0]["freed"]
        topics = {Topic.PENDING} if freed or fresh else set()
        if changes:
            topics |= {Topic.KERNELS, Topic.ROUTES}
            self._bell.ring_orders([agent_id])
        self._bell.ring(topics)
        return len(changes)

    async def _heard(self, report: Report) -> bool:
        """Write who it is and what it offers; True if it is new, back, or changed what it is."""
        info = report.info
        before = await self._report_line.fetch(
            SQL["agent_upsert"],
            info.agent_id,
            info.resource_group,
            report.incarnation,
            info.address,
            info.version,
            info.arch,
            list(info.runtimes),
            list(info.engines),
            info.labels,
            report.draining,
        )
        await self._report_line.fetch(
            SQL["agent_slots_put"],
            info.agent_id,
            [o.slot for o in info.offers],
            [o.device_id for o in info.offers],
            [o.capacity for o in info.offers],
            [o.model for o in info.offers],
            [o.memory_bytes for o in info.offers],
            [o.healthy for o in info.offers],
        )
        return bool(before[0]["old_status"] != "ALIVE" or before[0]["old_incarnation"] != report.incarnation)

    async def _write_changes(self, agent_id: AgentId, changes: Sequence[KernelChange]) -> None:
        seen = [c.observation for c in changes]
        await self._report_line.fetch(
            SQL["kernel_observe"],
            agent_id,
            [c.kernel_id for c in changes],
            [c.old for c in changes],
            [c.new for c in changes],
            [o.state for o in seen],
            [o.host for o in seen],
            [o.port for o in seen],
            [o.exit_code for o in seen],
            [o.reason for o in seen],
            [o.detail for o in seen],
            [o.log_tail for o in seen],
        )

    async def orders_for(self, agent_id: AgentId) -> tuple[KernelSpec, ...]:
        """The whole set of kernels that should exist there."""
        return (await self.orders_for_many([agent_id]))[agent_id]

    async def orders_for_many(self, agent_ids: Collection[AgentId]) -> dict[AgentId, tuple[KernelSpec, ...]]:
        """The same for several: one query, and one more if there are kernels that were not asked for before.

        What a kernel is never changes after its placement, so it is read once and remembered for as long as
        its agent should have it. An agent without kernels has an entry too.
        """
        wanted: dict[AgentId, list[KernelId]] = {agent_id: [] for agent_id in agent_ids}
        for row in await self._db.fetch(SQL["agent_wanted"], list(wanted)):
            wanted[AgentId(row["agent_id"])].append(KernelId(row["id"]))
        known = {a: self._ordered.get(a, {}) for a in wanted}
        unknown = [k for a, kernels in wanted.items() for k in kernels if k not in known[a]]
        fresh: dict[KernelId, KernelSpec] = {}
        if unknown:
            fresh = {
                KernelId(row["id"]): rows.kernel_spec(row)
                for row in await self._db.fetch(SQL["agent_orders"], unknown)
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
        return int((await self._db.fetchrow(SQL["generation_next"]))["generation"])

    async def mark_silent(self, suspect_after_s: float, lost_grace_s: float) -> list[tuple[str, str]]:
        """Mark agents SUSPECT or LOST by their silence, and give up the kernels of lost ones."""
        changed = await self._report_line.fetch(SQL["agents_silent"], suspect_after_s, lost_grace_s)
        lost = await self._report_line.fetch(SQL["kernels_lost"])
        if changed or lost:
            self._bell.ring([Topic.KERNELS, Topic.PENDING, Topic.ROUTES])
        return [(row["id"], row["status"]) for row in changed]

    async def list_agents(self) -> list[api.AgentView]:
        return [rows.agent_view(row) for row in await self._db.fetch(SQL["agent_list"], None)]

    async def get_agent(self, agent_id: str) -> api.AgentView:
        row = await self._db.fetchrow(SQL["agent_list"], agent_id)
        if row is None:
            raise NotFound(f"no agent {agent_id!r}", next_step="`fairlead agents` lists them")
        return rows.agent_view(row)
