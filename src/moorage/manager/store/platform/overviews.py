"""Changes, counts and occupancy for watchers: rows for events, counts by group, and the holders of
devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import AgentId, EndpointId, SessionId
from moorage.common.model.status import Status
from moorage.common.views import events
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows, read_page
from moorage.manager.store.sessions.rows import reload_view

_TROUBLED = 50  # the most agents that the overview names


@dataclass(frozen=True, slots=True)
class OverviewChange:
    """``projects``: the projects that may see it; None means all. ``group``: the resource group
    that a caller must be allowed to name; empty means any. ``user``: a user who also sees it."""

    view: events.SessionChange | events.AgentChange | events.EndpointChange | events.BudgetAlert
    projects: frozenset[str] | None = None
    group: str = ""
    user: str = ""


class OverviewStore:
    def __init__(self, db: Database, clock: Clock, unreadable: UnreadableRows) -> None:
        self._db = db
        self._clock = clock
        self._unreadable = unreadable

    async def changed(
        self,
        scope: Scope,
        sessions: Collection[SessionId],
        agents: Collection[AgentId],
        endpoints: Collection[EndpointId],
        *,
        alerts: Collection[str] = (),
    ) -> list[OverviewChange]:
        """Current state of these sessions, agents and endpoints, and of these budget alerts, with
        their audience."""
        scope.require_all("changes")
        found: list[OverviewChange] = []
        each = self._unreadable.each
        found += each(
            "session", await self._rows(SQL["changed_sessions"], sessions), _session_change
        )
        found += each("agent", await self._rows(SQL["changed_agents"], agents), _agent_change)
        found += each(
            "endpoint", await self._rows(SQL["changed_endpoints"], endpoints), _endpoint_change
        )
        found += each(
            "budget", await self._rows(SQL["changed_budgets"], alerts), _budget_alert, key="name"
        )

        return found

    async def _rows(self, statement: str, ids: Collection[str]) -> list[dict[str, Any]]:
        rows = await self._db.fetch(statement, sorted(ids)) if ids else []
        return [dict(row) for row in rows]

    async def overview(
        self, scope: Scope, groups: frozenset[str] | None, closed: frozenset[str] = frozenset()
    ) -> events.Overview:
        """Counts of the sessions that ``scope`` sees. ``groups``: only these resource groups; None
        means all except ``closed``."""
        agents: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for row in await self._db.fetch(SQL["overview_groups"]):
            by_status = agents[row["name"]]
            if row["status"] is not None:
                by_status[row["status"]] = row["n"]

        slots: defaultdict[str, dict[str, events.Capacity]] = defaultdict(dict)
        for row in await self._db.fetch(SQL["overview_slots"]):
            slots[row["resource_group"]][row["slot"]] = events.Capacity(**dict(row))

        for row in await self._db.fetch(SQL["overview_free"]):
            of_group = slots[row["resource_group"]]
            if (capacity := of_group.get(row["slot"])) is not None:
                update = {"free_devices": row["free"], "largest_block": row["largest"]}
                of_group[row["slot"]] = capacity.model_copy(update=update)

        sessions: defaultdict[str, list[Row]] = defaultdict(list)
        for row in await self._db.fetch(SQL["overview_sessions"], scope.projects):
            sessions[row["resource_group"]].append(row)

        shown = sorted((agents.keys() if groups is None else groups & agents.keys()) - closed)
        views = [_group(name, agents[name], slots[name], sessions[name]) for name in shown]
        total: defaultdict[str, int] = defaultdict(int)
        for view in views:
            for status, n in view.sessions.items():
                total[status] += n

        troubled = await self._db.fetch(SQL["overview_troubled"], shown, _TROUBLED)
        return events.Overview(
            now=self._clock.now(),
            sessions=dict(total),
            groups=views,
            troubled_agents=[events.TroubledAgent(**dict(row)) for row in troubled],
        )

    async def occupancy(
        self,
        scope: Scope,
        *,
        resource_group: str | None,
        agent: str | None,
        cursor: str | None,
        limit: int,
    ) -> Page[events.AgentOccupancy]:
        """Occupancy by agent. The names of kernels are omitted for projects that ``scope`` cannot
        read."""
        rows = await self._db.fetch(
            SQL["occupancy"], resource_group, agent, cursor or "", limit + 1
        )
        shown = rows[:limit]
        following = shown[-1]["id"] if len(rows) > limit else None

        return read_page(
            events.AgentOccupancy,
            "agent",
            rows=shown,
            read=lambda row: _occupancy(scope, row),
            following=following,
            name="id",
        )


def _session_change(row: Row) -> OverviewChange:
    reload = row["reload"] and reload_view(row["reload"])
    return OverviewChange(
        events.SessionChange(**{**row, "reload": reload}), frozenset({row["project"]})
    )


def _agent_change(row: Row) -> OverviewChange:
    return OverviewChange(events.AgentChange(**row), group=row["resource_group"])


def _endpoint_change(row: Row) -> OverviewChange:
    shared = set(row["shared_with"])
    projects = None if "*" in shared else frozenset({row["project"], *shared})
    return OverviewChange(events.EndpointChange(**row), projects)


def _budget_alert(row: Row) -> OverviewChange:
    payer = frozenset({row["name"]}) if row["scope"] == "project" else frozenset[str]()
    alert = {name: value for name, value in row.items() if name != "owner"}
    return OverviewChange(events.BudgetAlert(**alert), payer, user=row["owner"])


def _group(
    name: str, agents: dict[str, int], slots: dict[str, events.Capacity], sessions: list[Row]
) -> events.GroupOverview:
    by_status: defaultdict[str, int] = defaultdict(int)
    waiting: dict[str, int] = {}
    oldest = None
    for row in sessions:
        by_status[row["status"]] += row["n"]
        if row["status"] == Status.PENDING:
            waiting[row["reason"]] = row["n"]
            oldest = row["oldest"] if oldest is None else min(oldest, row["oldest"])

    return events.GroupOverview(
        name=name,
        sessions=dict(by_status),
        waiting=waiting,
        oldest_pending_since=oldest,
        agents=agents,
        slots=slots,
    )


def _occupancy(scope: Scope, row: Row) -> events.AgentOccupancy:
    holders: defaultdict[tuple[str, str], list[events.Holder]] = defaultdict(list)
    for held in row["holders"]:
        where = held["slot"], held["device_id"]
        holder = events.Holder(**held)
        if not scope.reads(holder.project):
            holder = events.Holder(amount=holder.amount, hidden=True)

        holders[where].append(holder)

    return events.AgentOccupancy(
        agent_id=row["id"],
        resource_group=row["resource_group"],
        status=row["status"],
        cordon=row["cordon"],
        draining=row["draining"],
        ready=row["ready"],
        slots=[
            events.OccupiedSlot(**slot, holders=holders[slot["slot"], slot["device_id"]])
            for slot in row["slots"]
        ],
    )
