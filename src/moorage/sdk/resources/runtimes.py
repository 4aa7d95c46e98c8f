"""Runtimes: how kernels run."""

from __future__ import annotations

from moorage.common.views.resources import RuntimeView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, listed


class Runtimes(Resource):
    """Runtimes: how kernels run."""

    def list(self) -> PagedList[RuntimeView]:
        """All runtimes with their properties. A group's ``runtimes`` are those that its agents
        offer."""
        return self._list(RuntimeView, "/v1/runtimes", is_paged=False)


class SyncRuntimes(SyncResource[Runtimes]):
    """``Runtimes`` without asyncio."""

    list = listed(Runtimes.list)
