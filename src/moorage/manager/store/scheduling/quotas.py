"""Quotas in Postgres: limits of users, projects and resource groups, and their usage.

Quotas of users and projects apply across all resource groups. Their usage is summed up from the
sessions on each read; scheduling passes keep the sums (``HeldSlots``). Node-hours are summed up
from the month's jobs; the sums of jobs that ended some time ago are kept (``JobSums``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Literal

from sqlalchemy import Text

from moorage.common.model.errors import NotFound
from moorage.common.model.group_options import QuotaLimits, QuotaScope
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.slots import parse_amount
from moorage.common.views import resources
from moorage.manager.identity.scope import Scope
from moorage.manager.scheduling.core.model import Quota
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.shape import SYSTEM_SESSIONS, user_of_qos
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows, read_one, read_page
from moorage.manager.store.database.versions import Versions, check_version, sent
from moorage.manager.store.scheduling.held_slots import SESSIONS, HeldSums
from moorage.manager.store.scheduling.node_hours import COLUMNS, JobSums, MonthSums
from moorage.manager.store.schema.base import TIME
from moorage.manager.workloads.run_limits import base_units

QosScope = Literal["qos", "qos-user"]
_LISTING = Listing(
    SQL["quota_list"],
    {"scope": Text(), "name": Text(), "changed_at": TIME},
    sorts=("scope", "name", "changed_at"),
    key=("scope", "name"),
    default="scope",
)


class QuotaStore:
    def __init__(self, db: Database, notifier: Notifier, unreadable: UnreadableRows) -> None:
        self._db = db
        self._notifier = notifier
        self._unreadable = unreadable
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)
        self._jobs = JobSums(db)

    async def page(
        self, scope: Scope, paging: Paging = FIRST, *, kind: QuotaScope | None = None
    ) -> resources.Page[resources.QuotaView]:
        """Page of quotas that the caller may see: its own, its projects' and those of groups."""
        args = None, None, scope.projects, scope.owner.user
        rows, following = await _LISTING.page(self._db, paging, *args, only={"scope": kind})
        return read_page(
            resources.QuotaView,
            "quota",
            rows=await self._with_use(rows),
            read=_view,
            following=following,
        )

    async def get(self, scope: Scope, kind: QuotaScope, name: str) -> resources.QuotaView:
        """Get a quota. Raises ``NotFound``."""
        found = await self._with_use(await self._rows(scope, kind, name))
        if not found:
            raise _no_quota(kind, name)
        return read_one("quota of", f"{kind} {name}", found[0], _view)

    async def put(
        self,
        scope: Scope,
        kind: QuotaScope,
        name: str,
        limits: QuotaLimits,
        *,
        if_match: Versions = None,
    ) -> resources.QuotaView:
        """Replace the quota. ``if_match``: the versions that it may have now. Takes effect with the
        next scheduling pass and the next request. Raises ``PreconditionFailed`` for another
        version, and ``NotFound`` for an unknown group. The API checks users and projects."""
        slots = {slot: parse_amount(slot, amount) for slot, amount in limits.slots.items()}
        scope.require_all("quotas")
        counts = limits.sessions, limits.pending, limits.node_seconds, limits.system_sessions
        args = (kind, name, slots, *counts, scope.actor, sent(if_match))
        if not await self._connection.fetch(SQL["quota_put"], *args):
            await self._check(scope, kind, name, if_match)
            raise NotFound(f"no resource group {name!r}", next_step="`moorage groups` lists them")

        self._notifier.notify([Topic.SCHEDULE])
        return await self.get(scope, kind, name)

    async def delete(
        self, scope: Scope, kind: QuotaScope, name: str, *, if_match: Versions = None
    ) -> resources.QuotaView:
        """Delete a quota and return its last state.

        Raises ``NotFound``, and ``PreconditionFailed`` for a version not in ``if_match``."""
        scope.require_all("quotas")
        view = await self.get(scope, kind, name)
        if not await self._connection.fetch(SQL["quota_delete"], kind, name, sent(if_match)):
            await self._check(scope, kind, name, if_match)
            raise _no_quota(kind, name)

        self._notifier.notify([Topic.SCHEDULE])
        return view

    async def _check(self, scope: Scope, kind: QuotaScope, name: str, if_match: Versions) -> None:
        rows = await self._rows(scope, kind, name)
        check_version(
            f"the quota of {kind} {name!r}", rows[0]["version"] if rows else None, if_match
        )

    async def shares(
        self,
        group: str,
        policy: Policy,
        held: Callable[[], Awaitable[HeldSums]] | None = None,
        *,
        of_site: bool = False,
        now: datetime | None = None,
        users: Callable[[], Collection[tuple[str, str]]] = tuple,
    ) -> tuple[tuple[Quota, ...], Mapping[str, Mapping[str, int]] | None]:
        """For the planner: the quotas that apply in ``group`` and, for DRF, each owner's usage
        there. ``held``: returns the known sums; with None, all sessions are summed up. ``of_site``:
        whether the group is of kind hpc, because node-hours are limited only there. ``now``:
        determines the month. ``users``: returns the users to whom limits per user apply, each with
        its QoS ("" for none)."""
        rows = await self._rows(Scope.system(), None, None)
        quotas = [row for row in rows if _applies(row, group, of_site)]
        uses_drf = policy.strategy == "drf"
        limits = await self._db.fetch(SQL["group_user_limits"], group)
        qos = await self._db.fetch(SQL["qos_limits"])
        if not (quotas or uses_drf or limits or qos):
            return (), None

        sums = await (held or self._sum_all)()
        limits_jobs = of_site and any(row["node_seconds"] is not None for row in quotas)
        jobs = await self._jobs.of_month(now) if limits_jobs else None
        share_by = "project" if policy.share_by == "project" else "user"

        planned = [self._planned(row, sums, jobs, group) for row in quotas]
        asking = sorted(users()) if limits or qos else []
        for row in limits:
            names = dict.fromkeys(user for user, _ in asking)
            planned += [self._per_user(row, sums, user) for user in names]
        for row in qos:
            names = dict.fromkeys(user for user, name in asking if name == row["name"])
            planned += self._of_qos(row, sums, group, names)

        return (
            tuple(planned),
            sums.by_owner(share_by, group) if uses_drf else None,
        )

    async def unused(self, group: str, *, of_site: bool) -> tuple[Quota, ...]:
        """The quotas that apply in ``group``, as if nothing were used. ``of_site``: as for
        ``shares``."""
        rows = await self._rows(Scope.system(), None, None)
        found = []
        for row in rows:
            if _applies(row, group, of_site):
                quota = self._planned(row, HeldSums(), None, group)
                found.append(replace(quota, node_seconds=row["node_seconds"] if of_site else None))

        return tuple(found)

    def _planned(self, row: Row, sums: HeldSums, jobs: MonthSums | None, group: str) -> Quota:
        """The planner's quota. If a quota cannot be read, nothing is allowed, so that a limit is
        not lifted because a newer release has set it."""
        read = partial(_quota, sums=sums, jobs=jobs, group=group)
        found = self._unreadable.each("quota", [row], read, key="name")
        return found[0] if found else Quota(row["scope"], row["name"], sessions=0)

    def _per_user(self, row: Row, sums: HeldSums, user: str) -> Quota:
        """The limits of a group on one user, for the planner; as for ``_planned``, nothing is
        allowed if they cannot be read."""

        def read(row: Row) -> Quota:
            used = sums.of("user", user, row["name"])
            running = used.get(SESSIONS, 0)
            limits = base_units(row["max_per_user"])
            sessions = row["max_running_per_user"]
            return Quota("group-user", user, limits, used, sessions=sessions, running=running)

        found = self._unreadable.each("resource group", [row], read, key="name")
        return found[0] if found else Quota("group-user", user, sessions=0)

    def _of_qos(
        self, row: Row, sums: HeldSums, group: str, users: Iterable[str]
    ) -> Iterator[Quota]:
        """The limits of a QoS on all its sessions, and on those of each user; as for ``_planned``,
        nothing is allowed if they cannot be read."""
        name = row["name"]
        found: list[tuple[QosScope, str, Mapping[str, Any], int | None]] = []
        if row["max_total"] or row["max_running"] is not None:
            found.append(("qos", name, row["max_total"], row["max_running"]))
        for user in users:
            who = user_of_qos(name, user)
            found.append(("qos-user", who, row["max_per_user"], row["max_running_per_user"]))

        for scope, who, slots, sessions in found:
            used = sums.of(scope, who)
            elsewhere = sums.elsewhere(scope, who, group)
            counted = Quota(
                scope,
                who,
                used=used,
                sessions=sessions,
                running=used.get(SESSIONS, 0),
                running_elsewhere=elsewhere.pop(SESSIONS, 0),
                used_elsewhere=elsewhere,
            )
            read = partial(_with_limits, counted, slots)
            readable = self._unreadable.each("QoS", [row], read, key="name")
            yield readable[0] if readable else Quota(scope, who, sessions=0)

    async def _sum_all(self) -> HeldSums:
        sums = HeldSums()
        for row in await self._db.fetch(SQL["quota_usage"]):
            sums.add(
                row["resource_group"],
                row["owner"],
                row["project"],
                {row["slot"]: row["amount"]},
                qos=row["qos"] or "",
            )
        return sums

    async def _rows(self, scope: Scope, kind: QuotaScope | None, name: str | None) -> list[Any]:
        user = None if scope.projects is None else scope.owner.user
        return await self._db.fetch(SQL["quota_list"], kind, name, scope.projects, user)

    async def _with_use(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        """Quotas with their usage, as ``_view`` expects them."""
        rows = list(rows)
        if not rows:
            return []

        used = await self._sum_all()
        limits_jobs = any(row["node_seconds"] is not None for row in rows)
        jobs = await self._jobs.of_month() if limits_jobs else None
        pending: dict[tuple[str, str], int] = {}
        for row in await self._db.fetch(SQL["pending_counts"]):
            for scope, column in COLUMNS.items():
                pending[scope, row[column]] = pending.get((scope, row[column]), 0) + row["n"]

        found = []
        for row in rows:
            name = row["scope"], row["name"]
            slots = used.of(*name)
            running = slots.pop(SESSIONS, 0)
            system = slots.pop(SYSTEM_SESSIONS, 0)
            counts = {"used": slots, "running": running, "waiting": pending.get(name, 0)}
            counts |= {"system_running": system}
            hours = _node_hours(row["node_seconds"], name, jobs)
            found.append(dict(row) | counts | hours)

        return found


def _view(row: Mapping[str, Any]) -> resources.QuotaView:
    return resources.QuotaView.model_validate(row)


def _node_hours(
    limit: int | None, name: tuple[str, str], jobs: MonthSums | None
) -> dict[str, float | None]:
    if limit is None or jobs is None:
        return {}
    seconds = {"": limit, "_used": jobs.used[name], "_reserved": jobs.reserved[name]}
    return {f"node_hours{suffix}": round(amount / 3600, 4) for suffix, amount in seconds.items()}


def _applies(row: Any, group: str, of_site: bool) -> bool:
    in_scope = row["scope"] != "group" or row["name"] == group
    limits_jobs = of_site and row["node_seconds"] is not None
    limits_sessions = row["sessions"] is not None or row["system_sessions"] is not None
    return in_scope and (bool(row["slots"]) or limits_sessions or limits_jobs)


def _quota(row: Any, sums: HeldSums, jobs: MonthSums | None, group: str) -> Quota:
    scope = row["scope"]
    name = row["name"]
    used = sums.of(scope, name)
    elsewhere = sums.elsewhere(scope, name, group)
    running = used.get(SESSIONS, 0)
    away = elsewhere.pop(SESSIONS, 0)
    system = row["system_sessions"]
    if strange := [slot for slot, limit in row["slots"].items() if type(limit) is not int]:
        raise ValueError(f"the limit of {strange[0]} is not a number")

    limits = row["slots"] if system is None else {**row["slots"], SYSTEM_SESSIONS: system}
    quota = Quota(
        scope,
        name,
        limits=limits,
        used=used,
        sessions=row["sessions"],
        running=running,
        used_elsewhere=elsewhere,
        running_elsewhere=away,
    )
    if jobs is None or row["node_seconds"] is None:
        return quota

    return replace(
        quota,
        node_seconds=row["node_seconds"],
        node_seconds_used=jobs.used[scope, name] + jobs.reserved[scope, name],
        month_ends=round(jobs.month_ends.timestamp()) * 1_000_000,
    )


def _with_limits(quota: Quota, slots: Mapping[str, Any], _: Row) -> Quota:
    return replace(quota, limits=base_units(slots))


def _no_quota(scope: str, name: str) -> NotFound:
    return NotFound(f"{scope} {name!r} has no quota", next_step="`moorage quotas` lists them")
