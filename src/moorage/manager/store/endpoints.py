"""Endpoints in Postgres. Their status and failures are computed from their replicas, never stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import RouteTable
from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import TERMINAL, EndpointStatus, Status
from moorage.common.views import resources
from moorage.manager.identity.keys import Owner
from moorage.manager.serving.replicas import (
    EndpointSnapshot,
    ReplicaSnapshot,
    consecutive_failures,
    endpoint_status,
    plan_replicas,
)
from moorage.manager.serving.routes import route_table
from moorage.manager.store import rows, tables
from moorage.manager.store.database import Database
from moorage.manager.store.keys import Access
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL


class Endpoints:
    """Part of ``Store``."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db, self._notifier, self._clock = db, notifier, clock
        self._line = db.line()

    async def create_endpoint(
        self, spec: EndpointSpec, *, actor: str, owner: Owner | None = None
    ) -> resources.EndpointView:
        """Durable when it returns. Raises ``Conflict`` for a name in use, ``NotFound`` for the group."""
        owner = owner or Owner(actor)
        row = (
            await self._line.fetch(
                SQL["endpoint_create"],
                self._clock.new_id(),
                spec.name,
                spec.model_dump(mode="json"),
                spec.replicas,
                actor,
                spec.resource_group,
                owner.user,
                owner.project,
            )
        )[0]
        if not row["group_known"]:
            raise NotFound(
                f"resource_group {spec.resource_group!r} does not exist",
                next_step="`moorage groups` lists them",
            )
        if not row["made"]:
            raise Conflict(
                f"an endpoint is already called {spec.name!r}",
                next_step=f"`moorage stop {spec.name}` first, or choose another name",
            )
        self._notifier.notify([Topic.ENDPOINTS, Topic.ROUTES])
        return await self.get_endpoint(spec.name)

    async def get_endpoint(self, name: str) -> resources.EndpointView:
        """Raises ``NotFound``; a deleted endpoint is not found, its sessions still are."""
        e = tables.endpoints.c
        found = await self._db.select(select(tables.endpoints).where(e.name == name, e.deleted_at.is_(None)))
        if not found:
            raise _no_endpoint(name)
        return (await self._views(found))[0]

    async def list_endpoints(
        self, *, cursor: str | None = None, limit: int = 50
    ) -> resources.Page[resources.EndpointView]:
        """By name. The cursor is the last name of the page before."""
        e = tables.endpoints.c
        wanted: list[Any] = [e.deleted_at.is_(None)]
        if cursor is not None:
            if not cursor.isprintable():
                raise InvalidInput(
                    "cursor is not one of ours", next_step="pass the `next` of the page before"
                )
            wanted.append(e.name > cursor)
        found = await self._db.select(
            select(tables.endpoints).where(*wanted).order_by(e.name).limit(limit + 1)
        )
        views = await self._views(found[:limit])
        return resources.Page[resources.EndpointView](
            items=views, next=views[-1].name if len(found) > limit else None
        )

    async def scale_endpoint(self, name: str, replicas: int, *, actor: str) -> resources.EndpointView:
        """Also starts again an endpoint that was given up after repeated failure. Raises ``NotFound``."""
        if not await self._line.fetch(SQL["endpoint_scale"], name, replicas):
            raise _no_endpoint(name)
        self._notifier.notify([Topic.ENDPOINTS])
        return await self.get_endpoint(name)

    async def delete_endpoint(self, name: str, *, actor: str) -> resources.EndpointView:
        """Its replicas are stopped soon after; the name is free at once. Raises ``NotFound``."""
        view = await self.get_endpoint(name)
        if not await self._line.fetch(SQL["endpoint_delete"], name):
            raise _no_endpoint(name)
        self._notifier.notify([Topic.ENDPOINTS, Topic.ROUTES])
        return view.model_copy(update={"status": EndpointStatus.STOPPED, "replicas": 0})

    async def endpoint_facts(self) -> list[EndpointSnapshot]:
        """All that the replica keeper must look at."""
        found = await self._db.fetch(SQL["endpoints_to_reconcile"])
        replicas = await self._replicas(found)
        return [_facts(row, replicas) for row in found]

    async def routes(self, access: Access) -> RouteTable:
        """What proxies should know now, as generation 0: whoever sends it gives the number."""
        found = await self._db.fetch(SQL["route_rows"])
        return route_table(0, found, await access.key_grants())

    async def _replicas(self, found: Sequence[Mapping[str, Any]]) -> list[Any]:
        return await self._db.fetch(SQL["endpoint_sessions"], [row["id"] for row in found]) if found else []

    async def _views(self, found: Sequence[Mapping[str, Any]]) -> list[resources.EndpointView]:
        replicas = await self._replicas(found)
        return [self._view(row, replicas) for row in found]

    def _view(self, row: Mapping[str, Any], replicas: Sequence[Mapping[str, Any]]) -> resources.EndpointView:
        facts = _facts(row, replicas)
        plan = plan_replicas(facts, self._clock.now())
        failed = consecutive_failures(facts.replicas, facts.changed_at)
        shown = [rows.replica_view(r) for r in replicas if r["endpoint_id"] == row["id"]]
        last = next((v for v in shown if failed and v.session_id == failed[0].session_id), None)
        return resources.EndpointView(
            id=row["id"],
            name=row["name"],
            status=endpoint_status(facts),
            replicas=facts.wanted,
            ready=sum(r.status is Status.RUNNING for r in facts.replicas),
            reason=last.reason if last else Reason.NONE,
            detail=last.detail if last else "",
            failures=plan.failures,
            retry_at=plan.retry_at,
            revision=row["revision"],
            created_at=row["created_at"],
            user=row["owner"],
            project=row["project"],
            spec=facts.spec,
            sessions=[v for v in shown if v.status not in TERMINAL]
            + [v for v in shown if v.status in TERMINAL][:5],
        )


def _facts(row: Mapping[str, Any], replicas: Sequence[Mapping[str, Any]]) -> EndpointSnapshot:
    return EndpointSnapshot(
        EndpointId(row["id"]),
        row["name"],
        EndpointSpec.model_validate(row["spec"]),
        row["replicas"],
        row["changed_at"],
        row["deleted_at"] is not None,
        tuple(
            ReplicaSnapshot(
                SessionId(r["id"]),
                Status(r["status"]),
                r["created_at"],
                r["status_since"],
                r["ready_at"],
                Reason(r["reason"]),
                r["agent_silent"],
                r["agent_drained"],
            )
            for r in replicas
            if r["endpoint_id"] == row["id"]
        ),
        Owner(row["owner"], row["project"]),
    )


def _no_endpoint(name: str) -> NotFound:
    return NotFound(f"no endpoint {name!r}", next_step="`moorage ps` lists them")
