"""Session templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.common.model.templates import TemplateRun, TemplateSpec
from moorage.common.views.pending import PlanView
from moorage.common.views.resources import SessionView
from moorage.common.views.templates import TemplateView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import etag, segment


class Templates(Resource):
    """Session templates."""

    async def put(
        self,
        name: str,
        template: TemplateSpec,
        *,
        for_all: bool = False,
        version: int | None = None,
    ) -> TemplateView:
        """Add a version, which becomes the latest. ``for_all``: share the template with all
        projects; for administrators. ``version``: refuse (412) if the latest version is a different
        one."""
        query = {"for_all": "true" if for_all else None}
        path = f"/v1/templates/{segment(name)}"
        tag = etag(version)

        return await self._call(TemplateView, "PUT", path, query=query, body=template, if_match=tag)

    def list(self) -> PagedList[TemplateView]:
        """The latest version of each template."""
        return self._list(TemplateView, "/v1/templates")

    async def get(self, name: str, version: int | None = None) -> TemplateView:
        query = {"version": None if version is None else str(version)}
        return await self._call(TemplateView, "GET", f"/v1/templates/{segment(name)}", query=query)

    def versions(self, name: str) -> PagedList[TemplateView]:
        """The newest first."""
        path = f"/v1/templates/{segment(name)}/versions"
        return self._list(TemplateView, path)

    async def delete(self, name: str, *, for_all: bool = False) -> TemplateView:
        """Delete all versions. Returns the latest."""
        query = {"for_all": "true" if for_all else None}
        return await self._call(
            TemplateView, "DELETE", f"/v1/templates/{segment(name)}", query=query
        )

    async def start(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
        *,
        version: int | None = None,
        idempotency_key: str | None = None,
        strict: bool = False,
        force: bool = False,
    ) -> SessionView:
        """Create a session from a template. ``overrides``: fields of its specification; None
        removes a field."""
        body = TemplateRun(
            version=version, parameters=dict(parameters or {}), overrides=dict(overrides or {})
        )
        query = {"strict": "true" if strict else None, "force": "true" if force else None}
        path = f"/v1/templates/{segment(name)}/sessions"

        return await self._call(
            SessionView,
            "POST",
            path,
            query=query,
            body=body,
            idempotency_key=self._client.repeatable(idempotency_key),
        )

    async def plan(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
        *,
        version: int | None = None,
    ) -> PlanView:
        """Where a session from the template would start now. Creates nothing."""
        body = TemplateRun(
            version=version, parameters=dict(parameters or {}), overrides=dict(overrides or {})
        )
        path = f"/v1/templates/{segment(name)}/sessions/plan"
        return await self._call(PlanView, "POST", path, body=body)


class SyncTemplates(SyncResource[Templates]):
    """``Templates`` without asyncio."""

    put = blocking(Templates.put)
    list = listed(Templates.list)
    get = blocking(Templates.get)
    versions = listed(Templates.versions)
    delete = blocking(Templates.delete)
    start = blocking(Templates.start)
    plan = blocking(Templates.plan)
