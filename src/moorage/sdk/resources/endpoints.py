"""Endpoints: served models and their replicas."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from moorage.common.model.spec import EndpointSpec
from moorage.common.views.endpoints import EndpointPatch, EndpointView, Scale, ScalingDecision
from moorage.common.views.load import EndpointLoad, LoadStep
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed, time_window
from moorage.sdk.transport import segment
from moorage.sdk.waiting import first


class Endpoints(Resource):
    """Endpoints: served models and their replicas."""

    async def create(
        self, spec: EndpointSpec, *, idempotency_key: str | None = None
    ) -> EndpointView:
        """``idempotency_key``: as in ``sessions.create``."""
        return await self._call(
            EndpointView,
            "POST",
            "/v1/endpoints",
            body=spec,
            idempotency_key=self._client.repeatable(idempotency_key),
        )

    async def get(self, name: str) -> EndpointView:
        return await self._call(EndpointView, "GET", f"/v1/endpoints/{segment(name)}")

    def list(
        self,
        *,
        user: str | None = None,
        project: str | None = None,
        search: str | None = None,
        selector: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> PagedList[EndpointView]:
        """List endpoints by name. ``selector``: selects by user labels, as in ``sessions.list``.
        ``search``: a part of the name. ``sort``: name, created_at, user or project. ``limit``: the
        most to return; None means all."""
        query = {
            "user": user,
            "project": project,
            "search": search,
            "selector": selector,
            "sort": sort,
        }
        return self._list(EndpointView, "/v1/endpoints", query, limit=limit)

    async def update(
        self,
        name: str,
        patch: EndpointPatch,
        *,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> EndpointView:
        """Update an endpoint. Changes that affect its replicas are rolled out. ``version``: refuse
        (412) if the endpoint has a different version."""
        return await self._call(
            EndpointView,
            "PATCH",
            f"/v1/endpoints/{segment(name)}",
            body=patch,
            if_match=None if version is None else f'"{version}"',
            idempotency_key=self._client.repeatable(idempotency_key),
        )

    async def scale(self, name: str, replicas: int) -> EndpointView:
        body = Scale(replicas=replicas)
        return await self._call(
            EndpointView, "POST", f"/v1/endpoints/{segment(name)}/scale", body=body
        )

    def scaling_decisions(self, name: str) -> PagedList[ScalingDecision]:
        """The latest scaling decisions, newest first."""
        path = f"/v1/endpoints/{segment(name)}/decisions"
        return self._list(ScalingDecision, path, is_paged=False)

    async def delete(self, name: str) -> EndpointView:
        return await self._call(EndpointView, "DELETE", f"/v1/endpoints/{segment(name)}")

    async def load(
        self,
        name: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: LoadStep | None = None,
    ) -> EndpointLoad:
        """Load over time. By default, covers the last hour, in the shortest suitable steps."""
        query = time_window(since, until, step)
        path = f"/v1/endpoints/{segment(name)}/load"
        return await self._call(EndpointLoad, "GET", path, query=query)

    async def wait(
        self,
        name: str,
        condition: Callable[[EndpointView], bool],
        *,
        timeout_s: float | None = None,
    ) -> EndpointView:
        """Return the endpoint as soon as ``condition`` holds. Raises the same errors as
        ``sessions.wait``."""
        # Imported here because only waits need events.
        from moorage.sdk.resources.events import Events

        found = await self.get(name)
        if condition(found):
            return found

        states = Events(self._client).states(
            lambda: self.get(name), "session", "endpoint", about=found.id, timeout_s=timeout_s
        )
        return await first(states, condition)


class SyncEndpoints(SyncResource[Endpoints]):
    """``Endpoints`` without asyncio."""

    create = blocking(Endpoints.create)
    get = blocking(Endpoints.get)
    list = listed(Endpoints.list)
    update = blocking(Endpoints.update)
    scale = blocking(Endpoints.scale)
    scaling_decisions = listed(Endpoints.scaling_decisions)
    delete = blocking(Endpoints.delete)
    load = blocking(Endpoints.load)
    wait = blocking(Endpoints.wait)
