"""List of administrative writes; ``http/audit.py`` records them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from moorage.common.model.spec import NoNul
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.audit import AuditEntry
from moorage.common.views.resources import Page
from moorage.manager.api.http.listing import PageQuery, SearchText, order, paging
from moorage.manager.api.http.route import Call, route
from moorage.manager.store.database.search import SEARCHED_ROWS


class AuditQuery(PageQuery):
    actor: NoNul | None = None
    user: NoNul | None = None
    action: NoNul | None = None
    resource: NoNul | None = None
    name: NoNul | None = None
    search: SearchText | None = Field(
        None,
        description=(
            "Only entries whose resource's name contains this text, in upper or lower case, among "
            f"the newest {SEARCHED_ROWS:,}."
        ),
    )
    since: Timestamp | None = Field(None, description="Entries from this time on.")
    until: Timestamp | None = Field(None, description="Entries before this time.")
    sort: Literal["at", "-at"] = order("-at")


@route(
    "GET",
    "/v1/audit",
    "List administrative writes, newest first, with their actors and changes",
    query=AuditQuery,
    returns=Page[AuditEntry],
    access="auditor",
)
async def list_audit(call: Call[None, AuditQuery]) -> Page[AuditEntry]:
    query = call.query
    names = ("actor", "user", "action", "resource", "name")
    filters = {name: value for name in names if (value := getattr(query, name)) is not None}
    since: datetime | None = query.since

    return await call.deps.store.audit.page(
        call.scope,
        filters=filters,
        since=since,
        until=query.until,
        search=query.search,
        paging=paging(query),
    )
