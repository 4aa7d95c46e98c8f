"""The catalogue of models, and how they fit the agents."""

from __future__ import annotations

from moorage.common.views.catalog import CatalogFitView, CatalogModelView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class Catalog(Resource):
    """The catalogue of models, and how they fit the agents."""

    def list(self) -> PagedList[CatalogModelView]:
        """All models of the catalogue, with the GPUs that fit each."""
        return self._list(CatalogModelView, "/v1/catalog", is_paged=False)

    async def get(
        self, model: str, *, resource_group: str = "default", context: int = 0
    ) -> CatalogFitView:
        """A model, how it fits the agents of a resource group, and the specification of an endpoint
        that serves it there. ``context``: tokens in a sequence; 0 means the longest that fits."""
        query = {"resource_group": resource_group, "context": str(context)}
        path = f"/v1/catalog/{segment(model)}"
        return await self._call(CatalogFitView, "GET", path, query=query)


class SyncCatalog(SyncResource[Catalog]):
    """``Catalog`` without asyncio."""

    list = listed(Catalog.list)
    get = blocking(Catalog.get)
