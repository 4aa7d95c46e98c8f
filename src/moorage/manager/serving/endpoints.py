"""Endpoint service for the API: endpoints of the store, with the status that follows from their replicas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from moorage.common.aio.clock import Clock
from moorage.common.model.reasons import Reason
from moorage.common.model.roles import Role
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import TERMINAL, EndpointStatus, Status
from moorage.common.views.resources import EndpointView, Page
from moorage.manager.identity.scope import Scope
from moorage.manager.serving.replicas import consecutive_failures, endpoint_status, plan_replicas
from moorage.manager.store.endpoints import EndpointRecord, EndpointStore

_ENDED_SHOWN = 5


class EndpointService:
    """All methods may raise ``StoreUnavailable``; those that take a name raise ``NotFound``."""

    def __init__(self, store: EndpointStore, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def create(
        self, scope: Scope, spec: EndpointSpec, *, shared_with: Sequence[str] = ()
    ) -> EndpointView:
        """Raises ``Conflict`` for a name in use, ``NotFound`` for an unknown group."""
        return self._view(scope, await self._store.create(scope, spec, shared_with=shared_with))

    async def get(self, scope: Scope, name: str) -> EndpointView:
        return self._view(scope, await self._store.get(scope, name))

    async def page(self, scope: Scope, *, cursor: str | None = None, limit: int = 50) -> Page[EndpointView]:
        """Ordered by name. ``cursor``: the ``next`` of the previous page."""
        records, following = await self._store.page(scope, cursor=cursor, limit=limit)
        return Page[EndpointView](items=[self._view(scope, record) for record in records], next=following)

    async def scale(self, scope: Scope, name: str, replicas: int) -> EndpointView:
        """Also restarts an endpoint that was given up after repeated failures."""
        return self._view(scope, await self._store.scale(scope, name, replicas))

    async def delete(self, scope: Scope, name: str) -> EndpointView:
        """The name is free at once; the replicas stop soon after."""
        view = self._view(scope, await self._store.delete(scope, name))
        return view.model_copy(update={"status": EndpointStatus.STOPPED, "replicas": 0})

    def _view(self, scope: Scope, record: EndpointRecord) -> EndpointView:
        return visible_part(scope, endpoint_view(record, self._clock.now()))


def visible_part(scope: Scope, view: EndpointView) -> EndpointView:
    """Its name, state and numbers, for viewers and for projects that it is shared with. Pure."""
    if scope.reads(view.project) and scope.role is not Role.VIEWER:
        return view
    return view.model_copy(update={"spec": None, "sessions": [], "detail": "", "user": "", "shared_with": []})


def endpoint_view(record: EndpointRecord, now: datetime) -> EndpointView:
    """Pure."""
    snapshot, replicas = record.snapshot, record.replicas
    plan = plan_replicas(snapshot, now)
    failed = consecutive_failures(snapshot.replicas, snapshot.changed_at)
    last = next((view for view in replicas if failed and view.session_id == failed[0].session_id), None)
    ended = [view for view in replicas if view.status in TERMINAL]
    return EndpointView(
        id=snapshot.endpoint_id,
        name=snapshot.name,
        status=endpoint_status(snapshot),
        replicas=snapshot.wanted,
        ready=sum(replica.status is Status.RUNNING for replica in snapshot.replicas),
        reason=last.reason if last else Reason.NONE,
        detail=last.detail if last else "",
        failures=plan.failures,
        retry_at=plan.retry_at,
        revision=record.revision,
        created_at=record.created_at,
        user=snapshot.owner.user,
        project=snapshot.owner.project,
        shared_with=record.shared_with,
        spec=snapshot.spec,
        sessions=[view for view in replicas if view.status not in TERMINAL] + ended[:_ENDED_SHOWN],
    )
