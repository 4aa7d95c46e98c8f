"""Quotas in Postgres: what users, projects and resource groups may have, and what they have.

Those of users and projects count in all resource groups together, that of a group in it. What is used is
summed from the sessions that hold something, never counted beside them, so it cannot drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.common.model.errors import NotFound
from moorage.common.model.group_options import QuotaLimits, Scope
from moorage.common.model.slots import parse_amount
from moorage.common.views import resources
from moorage.manager.scheduling import Policy
from moorage.manager.scheduling.core.model import Quota
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL

_OF: Mapping[str, str] = {"user": "owner", "project": "project", "group": "resource_group"}
_SESSIONS = ""  # the "slot" under which sessions are counted
Usage = Mapping[tuple[str, str], Mapping[str, int]]


class Quotas:
    """Part of ``Store``."""

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db, self._notifier = db, notifier
        self._quota_line = db.line()

    async def list_quotas(self) -> list[resources.QuotaView]:
        return await self._quota_views(await self._db.fetch(SQL["quota_list"], None, None))

    async def get_quota(self, scope: Scope, name: str) -> resources.QuotaView:
        """Raises ``NotFound``."""
        found = await self._quota_views(await self._db.fetch(SQL["quota_list"], scope, name))
        if not found:
            raise _no_quota(scope, name)
        return found[0]

    async def put_quota(
        self, scope: Scope, name: str, limits: QuotaLimits, *, actor: str
    ) -> resources.QuotaView:
        """Set it whole; takes effect with the next pass and the next request. Raises ``NotFound`` for a group
        that does not exist; users and projects may come later."""
        slots = {slot: parse_amount(slot, amount) for slot, amount in limits.slots.items()}
        args = (scope, name, slots, limits.sessions, limits.pending, actor)
        if not await self._quota_line.fetch(SQL["quota_put"], *args):
            raise NotFound(f"no resource group {name!r}", next_step="`moorage groups` lists them")
        self._notifier.notify([Topic.PENDING])
        return await self.get_quota(scope, name)

    async def delete_quota(self, scope: Scope, name: str) -> resources.QuotaView:
        """No limit any more; returns it as it was. Raises ``NotFound``."""
        view = await self.get_quota(scope, name)
        if not await self._quota_line.fetch(SQL["quota_delete"], scope, name):
            raise _no_quota(scope, name)
        self._notifier.notify([Topic.PENDING])
        return view

    async def shares(
        self, group: str, policy: Policy
    ) -> tuple[tuple[Quota, ...], Mapping[str, Mapping[str, int]] | None]:
        """For the planner: the quotas that count in ``group``, and for drf what each owner holds there."""
        quotas = [row for row in await self._db.fetch(SQL["quota_list"], None, None) if _counts(row, group)]
        fair = policy.strategy == "drf"
        if not quotas and not fair:
            return (), None
        found = await self._db.fetch(SQL["usage_rows"])
        used = _add_up(found)
        holds = [row for row in found if row["resource_group"] == group and row["slot"] != _SESSIONS]
        return (
            tuple(_quota(row, used.get((row["scope"], row["name"]), {})) for row in quotas),
            _by(holds, "project" if policy.share_by == "project" else "owner") if fair else None,
        )

    async def _quota_views(self, rows: Iterable[Any]) -> list[resources.QuotaView]:
        rows = list(rows)
        if not rows:
            return []
        used = _add_up(await self._db.fetch(SQL["usage_rows"]))
        waiting: dict[tuple[str, str], int] = {}
        for row in await self._db.fetch(SQL["waiting_counts"]):
            for scope, column in _OF.items():
                waiting[scope, row[column]] = waiting.get((scope, row[column]), 0) + row["n"]
        views = []
        for row in rows:
            name = row["scope"], row["name"]
            has = dict(used.get(name, {}))
            running = has.pop(_SESSIONS, 0)
            counts = {"used": has, "running": running, "waiting": waiting.get(name, 0)}
            views.append(resources.QuotaView.model_validate(dict(row) | counts))
        return views


def _counts(row: Any, group: str) -> bool:
    here = row["scope"] != "group" or row["name"] == group
    return here and (bool(row["slots"]) or row["sessions"] is not None)


def _quota(row: Any, used: Mapping[str, int]) -> Quota:
    return Quota(
        row["scope"], row["name"], row["slots"], used, row["sessions"], running=used.get(_SESSIONS, 0)
    )


def _by(rows: Iterable[Any], column: str) -> dict[str, dict[str, int]]:
    """The sums of ``usage_rows.sql`` for each value of ``column``."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        mine = found.setdefault(row[column], {})
        mine[row["slot"]] = mine.get(row["slot"], 0) + row["amount"]
    return found


def _add_up(rows: Iterable[Any]) -> Usage:
    rows = list(rows)
    return {(scope, name): sums for scope, column in _OF.items() for name, sums in _by(rows, column).items()}


def _no_quota(scope: str, name: str) -> NotFound:
    return NotFound(f"{scope} {name!r} has no quota", next_step="`moorage quotas` lists them")
