"""Managers of the database."""

from __future__ import annotations

from moorage.common.views.managers import ManagerView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, listed


class Managers(Resource):
    """Managers of the database."""

    def list(self) -> PagedList[ManagerView]:
        """All managers of the database, oldest first. Each of them can answer this call."""
        return self._list(ManagerView, "/v1/managers", is_paged=False)


class SyncManagers(SyncResource[Managers]):
    """``Managers`` without asyncio."""

    list = listed(Managers.list)
