"""Audit log in Postgres. Entries are added and completed, and never changed afterwards."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select

from moorage.common.model.paging import FIRST, Paging
from moorage.common.views.audit import AuditEntry
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Order, fetch_page
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.search import contains, newest_ids
from moorage.manager.store.database.unreadable import read_page
from moorage.manager.store.schema import tables

# Ids are assigned in chronological order.
_ORDER = Order({"at": tables.audit_log.c.id}, [tables.audit_log.c.id], "-at")


class AuditStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def begin(
        self,
        scope: Scope,
        *,
        from_address: str,
        request_id: str,
        action: str,
        resource: str,
        name: str,
        before: dict[str, Any] | None,
    ) -> int:
        """Record a write that is about to happen; returns the id of its entry."""
        who = scope.actor, scope.owner.user, scope.owner.project
        row = await self._db.fetchrow(
            SQL["audit_begin"], *who, from_address, request_id, action, resource, name, before
        )
        return int(row["id"])

    async def finish(
        self,
        scope: Scope,
        entry: int,
        *,
        status: int,
        code: str,
        after: dict[str, Any] | None,
        name: str,
    ) -> None:
        """Complete an entry. ``name``: the name of the resource that the write created."""
        await self._db.fetch(SQL["audit_finish"], entry, status, code, after, name)

    async def page(
        self,
        scope: Scope,
        *,
        filters: dict[str, str],
        since: datetime | None,
        until: datetime | None,
        search: str | None = None,
        paging: Paging = FIRST,
    ) -> Page[AuditEntry]:
        """Page of entries, newest first by default. ``filters``: values of actor, user, action,
        resource and name. ``search``: a part of the name. Raises ``InvalidInput`` for a cursor that
        is not a page's ``next``."""
        scope.require_all("audit entries")
        a = tables.audit_log.c
        columns = {"user": a.user_name}
        conditions: list[Any] = [
            columns.get(name, a.get(name)) == value for name, value in filters.items()
        ]
        if since is not None:
            conditions.append(a.at >= since)
        if until is not None:
            conditions.append(a.at < until)

        if search is not None:
            conditions += [contains(a.name, search), newest_ids(a.id)]

        statement = select(tables.audit_log).where(*conditions)
        rows, following = await fetch_page(self._db, statement, _ORDER, paging)
        return read_page(
            AuditEntry,
            "audit entry",
            rows=rows,
            read=lambda row: AuditEntry(**dict(row), user=row["user_name"]),
            following=following,
            name="id",
        )
