"""The audit log of administrative writes."""

from __future__ import annotations

from datetime import datetime

from moorage.common.views.audit import AuditEntry
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, listed


class Audit(Resource):
    """The audit log of administrative writes."""

    def list(
        self,
        *,
        actor: str | None = None,
        user: str | None = None,
        action: str | None = None,
        resource: str | None = None,
        name: str | None = None,
        search: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> PagedList[AuditEntry]:
        """Administrative writes, newest first. ``search``: a part of the name. ``limit``: the most
        to return; None means all."""
        filters = {
            "actor": actor,
            "user": user,
            "action": action,
            "resource": resource,
            "name": name,
            "search": search,
            "since": since.isoformat() if since else None,
            "until": until.isoformat() if until else None,
        }
        return self._list(AuditEntry, "/v1/audit", filters, limit=limit)


class SyncAudit(SyncResource[Audit]):
    """``Audit`` without asyncio."""

    list = listed(Audit.list)
