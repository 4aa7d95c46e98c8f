"""Calls about endpoints."""

from __future__ import annotations

from moorage.common.model.spec import EndpointSpec
from moorage.common.views.resources import EndpointView, Page, Scale
from moorage.sdk.transport import Transport, segment


class EndpointCalls(Transport):
    async def create_endpoint(self, spec: EndpointSpec) -> EndpointView:
        return await self.call(EndpointView, "POST", "/v1/endpoints", body=spec)

    async def get_endpoint(self, name: str) -> EndpointView:
        return await self.call(EndpointView, "GET", f"/v1/endpoints/{segment(name)}")

    async def list_endpoints(self, *, cursor: str | None = None, limit: int = 50) -> Page[EndpointView]:
        """One page, newest first. Pass its ``next`` as ``cursor`` for the next page."""
        query = {"cursor": cursor, "limit": str(limit)}
        return await self.call(Page[EndpointView], "GET", "/v1/endpoints", query=query)

    async def scale_endpoint(self, name: str, replicas: int) -> EndpointView:
        body = Scale(replicas=replicas)
        return await self.call(EndpointView, "POST", f"/v1/endpoints/{segment(name)}/scale", body=body)

    async def delete_endpoint(self, name: str) -> EndpointView:
        return await self.call(EndpointView, "DELETE", f"/v1/endpoints/{segment(name)}")
