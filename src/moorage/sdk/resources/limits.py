"""Limits of keys, projects and models, with their use."""

from __future__ import annotations

from moorage.common.views.metering import LimitView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, listed


class Limits(Resource):
    """Limits of keys, projects and models, with their use."""

    def list(self) -> PagedList[LimitView]:
        """List the limits of keys, projects and models, with their use. ``keys.update``,
        ``projects.update`` and ``endpoints.update`` set them."""
        return self._list(LimitView, "/v1/limits", is_paged=False)


class SyncLimits(SyncResource[Limits]):
    """``Limits`` without asyncio."""

    list = listed(Limits.list)
