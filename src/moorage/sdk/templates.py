"""Calls about session templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.common.model.templates import TemplateRun, TemplateSpec
from moorage.common.views.pending import PlanView
from moorage.common.views.resources import Page, SessionView
from moorage.common.views.templates import TemplateView
from moorage.sdk.transport import Transport, etag, segment


class TemplateCalls(Transport):
    async def put_template(
        self,
        name: str,
        template: TemplateSpec,
        *,
        for_all: bool = False,
        version: int | None = None,
    ) -> TemplateView:
        """Add a version, which becomes the latest. ``for_all``: of all projects, for
        administrators. ``version``: refuse (412) if the latest is another one."""
        query = {"for_all": "true" if for_all else None}
        path = f"/v1/templates/{segment(name)}"
        tag = etag(version)

        return await self.call(TemplateView, "PUT", path, query=query, body=template, if_match=tag)

    async def list_templates(self) -> list[TemplateView]:
        """The latest version of each."""
        return await self.every(Page[TemplateView], "/v1/templates")

    async def get_template(self, name: str, version: int | None = None) -> TemplateView:
        query = {"version": None if version is None else str(version)}
        return await self.call(TemplateView, "GET", f"/v1/templates/{segment(name)}", query=query)

    async def list_template_versions(self, name: str) -> list[TemplateView]:
        """The newest first."""
        path = f"/v1/templates/{segment(name)}/versions"
        return await self.every(Page[TemplateView], path)

    async def delete_template(self, name: str, *, for_all: bool = False) -> TemplateView:
        """Delete all versions. Returns the latest."""
        query = {"for_all": "true" if for_all else None}
        return await self.call(
            TemplateView, "DELETE", f"/v1/templates/{segment(name)}", query=query
        )

    async def start_template(
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
        removes one."""
        body = TemplateRun(
            version=version, parameters=dict(parameters or {}), overrides=dict(overrides or {})
        )
        query = {"strict": "true" if strict else None, "force": "true" if force else None}
        path = f"/v1/templates/{segment(name)}/sessions"

        return await self.call(
            SessionView,
            "POST",
            path,
            query=query,
            body=body,
            idempotency_key=self.repeatable(idempotency_key),
        )

    async def plan_template(
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
        path = f"/v1/templates/{segment(name)}/sessions"
        return await self.call(PlanView, "POST", path, query={"dry_run": "true"}, body=body)
