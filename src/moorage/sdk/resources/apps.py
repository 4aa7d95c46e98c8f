"""Session apps, which are reached through service ports."""

from __future__ import annotations

from moorage.common.views.access_tokens import AppView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, listed
from moorage.sdk.transport import segment


class Apps(Resource):
    """Session apps, which are reached through service ports."""

    def list(self, ref: str) -> PagedList[AppView]:
        return self._list(AppView, f"/v1/sessions/{segment(ref)}/apps", is_paged=False)


class SyncApps(SyncResource[Apps]):
    """``Apps`` without asyncio."""

    list = listed(Apps.list)
