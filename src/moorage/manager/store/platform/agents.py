"""Agents in Postgres: reads, cordons and forgets them, and marks silent ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from pydantic import TypeAdapter
from sqlalchemy import Text

from moorage.common.model.addresses import is_dial_out_host
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.ids import AgentId, EndpointId, SessionId
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.status import AgentStatus
from moorage.common.views import resources
from moorage.manager.lifecycle.silence import AgentContact, Mark
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX, in_request_units
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows, read_one, read_page
from moorage.manager.store.platform.reports import ReportStore
from moorage.manager.store.schema.base import TIME

_LISTING = Listing(
    SQL["agent_list"],
    {name: Text() for name in ("id", "resource_group", "status", "cordon")},
    sorts=("id", "resource_group"),
    key=("id",),
    default="id",
)
_OFFERS = TypeAdapter(list[resources.OfferView])
_HISTORY = Listing(SQL["agent_history"], {"at": TIME}, sorts=("at",), key=("at",), default="-at")


class AgentStore:
    """Writes share the connection of ``reports``, because they lock the same rows and run one after
    the other."""

    def __init__(
        self, db: Database, notifier: Notifier, reports: ReportStore, unreadable: UnreadableRows
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._reports = reports
        self._unreadable = unreadable
        self._connection = reports.connection
        self._watch_connection = db.dedicated_connection()

    async def page(
        self,
        paging: Paging = FIRST,
        *,
        groups: Collection[str] | None = None,
        closed: Collection[str] = (),
        resource_group: str | None = None,
        status: AgentStatus | None = None,
        cordon: str | None = None,
    ) -> resources.Page[resources.AgentView]:
        """Page of the agents of ``groups`` (None means any) except the ``closed`` ones. The other
        arguments are filters."""
        named = (
            resource_group
            if groups is None
            else {*groups} & {resource_group or group for group in groups}
        )
        only = {"resource_group": named, "status": status, "cordon": cordon}
        rows, following = await _LISTING.page(
            self._db, paging, None, only=only, without={"resource_group": closed}
        )

        return read_page(
            resources.AgentView, "agent", rows=rows, read=_view, following=following, name="id"
        )

    async def get(self, agent_id: str) -> resources.AgentView:
        """Get an agent. Raises ``NotFound``, and ``Conflict`` for one that needs a newer manager to
        be shown."""
        row = await self._db.fetchrow(SQL["agent_list"], agent_id)
        if row is None:
            raise _not_found(agent_id)
        return read_one("agent", agent_id, row, _view)

    async def contacts(self, suspect_after_s: float) -> list[AgentContact]:
        """Agents that are SUSPECT or may become so; ``suspect_after_s`` is the shortest silence
        that matters."""
        rows = await self._watch_connection.fetch(SQL["agent_contacts"], suspect_after_s)
        return self._unreadable.each("agent", rows, _contact)

    async def mark_silent(
        self, marks: Sequence[Mark], term: int
    ) -> list[tuple[AgentId, AgentStatus]]:
        """Mark silent agents, as the leader of ``term`` has decided. Returns those that were
        marked; the others have reported since, or the term has ended."""
        if not marks:
            return []

        changed = await self._connection.fetch(
            SQL["agents_mark_silent"],
            [mark.agent_id for mark in marks],
            [mark.last_seen for mark in marks],
            [mark.new for mark in marks],
            [mark.silent_s for mark in marks],
            term,
        )
        await self._announce_silent([AgentId(row["id"]) for row in changed])
        return [(AgentId(row["id"]), AgentStatus(row["status"])) for row in changed]

    async def hold_losses(self, groups: Collection[str], term: int) -> list[tuple[str, bool]]:
        """Record the groups in which silent agents do not become LOST. Returns those that changed,
        each with whether it is now such a group."""
        rows = await self._watch_connection.fetch(SQL["groups_hold_losses"], sorted(groups), term)
        return [(row["name"], row["held"]) for row in rows]

    async def _announce_silent(self, silent: Collection[AgentId]) -> None:
        if not silent:
            return
        self._reports.invalidate(silent)
        self._notifier.notify_capacity(silent)
        await self._announce_endpoints(silent)
        affected = await self._connection.fetch(SQL["sessions_of_lost_agents"], list(silent))
        self._notifier.notify_kernels({SessionId(row["session_id"]) for row in affected})

    async def _announce_endpoints(self, agents: Collection[AgentId]) -> None:
        """Announce that the replicas on these agents are now counted differently."""
        rows = await self._connection.fetch(SQL["endpoints_of_agents"], list(agents))
        self._notifier.notify_endpoints({EndpointId(row["id"]) for row in rows})

    async def forget(
        self, agent_id: str, *, actor: str, destroyed: bool = False
    ) -> resources.ForgottenAgent:
        """Delete a silent agent; afterwards its id is free. Returns its last state, with what was
        released. ``destroyed``: its node is gone for good, so its kernels have ended. Raises
        ``NotFound``, or ``Conflict`` while it is ALIVE, or while its kernels may still run."""
        view = await self.get(agent_id)
        rows = await self._connection.fetch(SQL["agent_forget"], agent_id, actor, destroyed)
        if not rows and view.status is not AgentStatus.ALIVE and not destroyed:
            held = f"{view.kernels} kernels" if view.kernels else "allocations of kernels"
            restored = (
                ", and has not reported since a backup was restored" if view.restored_at else ""
            )
            raise Conflict(
                f"agent {agent_id!r} has {held} that are not known to have ended{restored}",
                next_step=(
                    "if its node is permanently gone or has been restarted since, use "
                    "--destroyed, after which their sessions may start elsewhere; otherwise let "
                    "the agent return"
                ),
            )

        if not rows:
            raise Conflict(
                f"agent {agent_id!r} is ALIVE, and only one that is SUSPECT or LOST can be "
                "forgotten",
                next_step="stop it first, then wait for manager.suspect_after_s",
            )

        sessions = {SessionId(session_id) for session_id in rows[0]["sessions"]}
        self._notifier.notify_pending(
            sessions
        )  # some may have been waiting for these kernels to end
        self._notifier.notify_kernels(sessions)
        self._notifier.notify_routes(sessions)
        await self._announce_silent([AgentId(agent_id)])
        self._notifier.notify([Topic.PEERS])

        return resources.ForgottenAgent(
            **dict(view),
            ended_kernels=rows[0]["kernels"],
            ended_sessions=sorted(sessions),
            released=_in_request_units(rows[0]["released"]),
        )

    async def cordon(
        self, agent_id: str, *, actor: str, drain: bool = False, stop_after_s: float | None = None
    ) -> resources.AgentView:
        """Place no new kernels on the agent. ``drain``: also replace replicas elsewhere, and stop
        or requeue the remaining sessions after ``stop_after_s`` seconds (None lets them end by
        themselves). Raises ``NotFound``."""
        return await self._set_cordon(agent_id, "drain" if drain else "cordon", stop_after_s, actor)

    async def uncordon(self, agent_id: str, *, actor: str) -> resources.AgentView:
        """Place new kernels on the agent again. Raises ``NotFound``."""
        return await self._set_cordon(agent_id, "", None, actor)

    async def assign(self, agent_id: str, group: str, *, actor: str) -> resources.AgentView:
        """Move an agent to a resource group, overriding its configuration. Its kernels stay.

        Raises ``NotFound`` for an unknown agent, and for a group that does not exist or is
        retired."""
        before = await self.get(agent_id)
        if not await self._connection.fetch(SQL["agent_assign"], agent_id, group, actor):
            raise NotFound(
                f"resource group {group!r} does not exist, or is retired",
                next_step="`moorage groups` lists them",
            )

        self._notifier.notify_capacity([AgentId(before.id)])
        self._notifier.notify_group(before.resource_group)
        self._notifier.notify_group(group)
        return await self.get(agent_id)

    async def _set_cordon(
        self, agent_id: str, cordon: str, stop_after_s: float | None, actor: str
    ) -> resources.AgentView:
        view = await self.get(agent_id)
        if not await self._connection.fetch(
            SQL["agent_cordon"], agent_id, cordon, stop_after_s, actor
        ):
            raise _not_found(agent_id)

        self._notifier.notify_capacity([AgentId(view.id)])
        await self._announce_endpoints([AgentId(view.id)])
        return await self.get(agent_id)

    async def sessions_past_drain(self, now: datetime) -> list[tuple[SessionId, AgentId, str]]:
        """Sessions on agents whose drain deadline has passed: session, agent, and the user who
        started the drain."""
        rows = await self._db.fetch(SQL["sessions_past_drain"], now)
        return [
            (SessionId(r["session_id"]), AgentId(r["agent_id"]), r["cordoned_by"]) for r in rows
        ]

    async def history(
        self, agent_id: str, paging: Paging = FIRST
    ) -> resources.Page[resources.AgentEvent]:
        """Administrative changes to an agent, newest first. Raises ``NotFound``."""
        await self.get(agent_id)
        rows, following = await _HISTORY.page(self._db, paging, agent_id)

        def read(row: Row) -> resources.AgentEvent:
            return resources.AgentEvent.model_validate(dict(row))

        return read_page(
            resources.AgentEvent, "event", rows=rows, read=read, following=following, name="at"
        )

    async def delete_history(self, days: int) -> None:
        """Delete history entries older than ``days`` days."""
        await self._connection.fetch(SQL["agent_history_delete_old"], days)

    async def fenced_devices(self, group: str, families: Collection[str]) -> list[str]:
        """Devices of these families ("cuda") in the group that are withheld because they are
        unhealthy, as human-readable lines."""
        rows = (
            await self._db.fetch(SQL["devices_fenced"], group, sorted(families)) if families else []
        )
        return [
            f"{r['device_id']} of {r['agent_id']}: {r['unhealthy_reason'] or 'it reports errors'}"
            for r in rows
        ]

    async def not_ready(self, group: str, limit: int = 5) -> list[str]:
        """Reasons that agents of the group themselves report for accepting no new work, as
        human-readable lines."""
        rows = await self._db.fetch(SQL["agents_not_ready"], group, limit)
        return [f"{row['id']} accepts no new work: {row['not_ready']}" for row in rows]


def _contact(row: Row) -> AgentContact:
    return AgentContact(
        AgentId(row["id"]),
        row["resource_group"],
        status=AgentStatus(row["status"]),
        last_seen=row["last_seen"],
        report_interval_s=row["report_interval_s"],
        grace_s=row["grace_s"] or 0.0,
        silent_s=row["silent_s"],
        group_agents=row["group_agents"] or 0,
    )


def _in_request_units(released: Mapping[str, int]) -> dict[str, int]:
    """Amounts in request units: devices are allocated in thousandths, but whole devices are shown
    as a count and fractions as shares."""
    family = DEVICE_SUFFIX
    shares = {
        slot.removesuffix(family) + SHARES_SUFFIX if slot.endswith(family) else slot: amount
        for slot, amount in released.items()
    }
    return {
        slot: amount for slot, (amount,) in (in_request_units(*each) for each in shares.items())
    }


def _not_found(agent_id: str) -> NotFound:
    return NotFound(f"no agent {agent_id!r}", next_step="`moorage agents` lists them")


def _view(row: Row) -> resources.AgentView:
    dials_out = is_dial_out_host(row["address"])
    return resources.AgentView(
        id=row["id"],
        status=row["status"],
        resource_group=row["resource_group"],
        address=row["address"],
        version=row["version"],
        arch=row["arch"],
        runtimes=row["runtimes"],
        engines=row["engines"],
        labels=row["labels"],
        draining=row["draining"],
        ready=row["ready"],
        restored_at=row["restored_at"],
        refuses_orders=row["refuses_orders"] and not row["not_ready"],
        # A manager of the previous release leaves the text unchanged.
        not_ready="" if row["ready"] else row["not_ready"],
        unknown_kernels=row["unknown_kernels"],
        doubtful_jobs=row["doubtful_jobs"],
        site_nodes=row["site_nodes"],
        cordon=row["cordon"],
        cordoned_by=row["cordoned_by"],
        cordoned_at=row["cordoned_at"],
        stop_at=row["stop_at"],
        connected_since=row["connected_at"],
        last_seen=row["last_seen"],
        offers=_OFFERS.validate_json(row["offers"]),
        kernels=row["kernels"],
        max_kernels=row["max_kernels"],
        loss_held_since=row["loss_held_since"],
        manager=row["manager_link"],
        reach="dial-out" if dials_out else "direct",
        # A manager of the previous release leaves these unchanged.
        reach_reason=row["reach_why"] if dials_out else "",
        unreached_by=row["unreached_by"],
        undialed=row["undialed"],
    )
