"""Calls about endpoints."""

from __future__ import annotations

from moorage.common.model.spec import EndpointSpec
from moorage.common.views.endpoints import (
    EndpointPatch,
    EndpointView,
    RevisionView,
    RolloutUndo,
    RolloutView,
    Scale,
    ScalingDecision,
)
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport, segment


class EndpointCalls(Transport):
    async def create_endpoint(
        self, spec: EndpointSpec, *, idempotency_key: str | None = None
    ) -> EndpointView:
        """``idempotency_key``: as of ``create_session``."""
        return await self.call(
            EndpointView,
            "POST",
            "/v1/endpoints",
            body=spec,
            idempotency_key=self.repeatable(idempotency_key),
        )

    async def get_endpoint(self, name: str) -> EndpointView:
        return await self.call(EndpointView, "GET", f"/v1/endpoints/{segment(name)}")

    async def list_endpoints(
        self,
        *,
        user: str | None = None,
        project: str | None = None,
        selector: str | None = None,
        sort: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[EndpointView]:
        """One page, by name. Pass its ``next`` as ``cursor`` for the next page. ``selector``: on
        their user labels, as of ``list_sessions``. ``sort``: name or created_at."""
        query = {"user": user, "project": project, "selector": selector, "sort": sort}
        query |= {"cursor": cursor, "limit": str(limit)}
        return await self.call(Page[EndpointView], "GET", "/v1/endpoints", query=query)

    async def update_endpoint(
        self,
        name: str,
        patch: EndpointPatch,
        *,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> EndpointView:
        """What changes the replicas rolls out. ``version``: refuse (412) if the endpoint has
        another one."""
        return await self.call(
            EndpointView,
            "PATCH",
            f"/v1/endpoints/{segment(name)}",
            body=patch,
            if_match=None if version is None else f'"{version}"',
            idempotency_key=self.repeatable(idempotency_key),
        )

    async def scale_endpoint(self, name: str, replicas: int) -> EndpointView:
        body = Scale(replicas=replicas)
        return await self.call(
            EndpointView, "POST", f"/v1/endpoints/{segment(name)}/scale", body=body
        )

    async def rollout_status(self, name: str) -> RolloutView:
        return await self.call(RolloutView, "GET", f"/v1/endpoints/{segment(name)}/rollout")

    async def rollout_history(self, name: str) -> list[RevisionView]:
        """Newest first."""
        path = f"/v1/endpoints/{segment(name)}/revisions"
        return await self.every(Page[RevisionView], path)

    async def scaling_decisions(self, name: str) -> list[ScalingDecision]:
        """The last ones, newest first."""
        path = f"/v1/endpoints/{segment(name)}/decisions"
        return (await self.call(Page[ScalingDecision], "GET", path)).items

    async def undo_rollout(self, name: str, revision: int | None = None) -> EndpointView:
        """Return to ``revision``; None: to the one that was served before."""
        path = f"/v1/endpoints/{segment(name)}/rollout/undo"
        return await self.call(EndpointView, "POST", path, body=RolloutUndo(revision=revision))

    async def promote_rollout(self, name: str) -> EndpointView:
        """Let the canary replace the stable revision."""
        return await self.call(
            EndpointView, "POST", f"/v1/endpoints/{segment(name)}/rollout/promote"
        )

    async def delete_endpoint(self, name: str) -> EndpointView:
        return await self.call(EndpointView, "DELETE", f"/v1/endpoints/{segment(name)}")
