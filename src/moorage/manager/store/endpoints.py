"""Endpoints in Postgres. Their status is not stored: ``serving`` derives it from the replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import Status
from moorage.common.views import resources
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot
from moorage.manager.store import tables
from moorage.manager.store.cursors import invalid_cursor
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier
from moorage.manager.store.queries import SQL
from moorage.manager.store.rows import Row

_FIRST = EndpointId("00000000-0000-0000-0000-000000000000")


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """An endpoint as stored, with views of its replicas, newest first."""

    snapshot: EndpointSnapshot
    revision: int
    created_at: datetime
    replicas: list[resources.ReplicaView]
    shared_with: list[str]


class EndpointStore:
    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db, self._notifier, self._clock = db, notifier, clock
        self._connection, self._sweep_connection = db.dedicated_connection(), db.dedicated_connection()

    async def create(
        self, scope: Scope, spec: EndpointSpec, *, shared_with: Sequence[str] = ()
    ) -> EndpointRecord:
        """It belongs to the owner of ``scope``. ``shared_with``: other projects that may use it; "*": all.
        Raises ``Conflict`` for a name in use, ``NotFound`` for an unknown group."""
        row = (
            await self._connection.fetch(
                SQL["endpoint_create"],
                self._clock.new_id(),
                spec.name,
                spec.model_dump(mode="json"),
                spec.replicas,
                scope.actor,
                spec.resource_group,
                scope.owner.user,
                scope.owner.project,
                list(shared_with),
                scope.owner.isolated,
            )
        )[0]
        if not row["group_known"]:
            raise NotFound(
                f"resource_group {spec.resource_group!r} does not exist",
                next_step="`moorage groups` lists them",
            )
        if not row["created"] and row["reserved"]:
            raise Conflict(
                f"the name {spec.name!r} belongs to another project, and for 30 days after its last use",
                next_step="choose another name",
            )
        if not row["created"]:
            raise Conflict(
                f"an endpoint is already called {spec.name!r}",
                next_step=f"`moorage stop {spec.name}` first, or choose another name",
            )
        self._announce(row["id"])
        return await self.get(scope, spec.name)

    async def get(self, scope: Scope, name: str) -> EndpointRecord:
        """Raises ``NotFound``, also for an endpoint that was deleted while its replicas are still
        stopping."""
        e = tables.endpoints.c
        conditions = (e.name == name, e.deleted_at.is_(None), *_visible(scope))
        found = await self._db.select(select(tables.endpoints).where(*conditions))
        if not found:
            raise _not_found(name)
        return (await self._records(found))[0]

    async def page(
        self, scope: Scope, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[EndpointRecord], str | None]:
        """Ordered by name, with the cursor of the next page. ``cursor``: the last name of the previous
        page."""
        e = tables.endpoints.c
        conditions: list[Any] = [e.deleted_at.is_(None), *_visible(scope)]
        if cursor is not None:
            if not cursor.isprintable():
                raise invalid_cursor(cursor)
            conditions.append(e.name > cursor)
        found = await self._db.select(
            select(tables.endpoints).where(*conditions).order_by(e.name).limit(limit + 1)
        )
        records = await self._records(found[:limit])
        return records, records[-1].snapshot.name if len(found) > limit else None

    async def scale(self, scope: Scope, name: str, replicas: int) -> EndpointRecord:
        """Set the number of replicas and clear the count of failures. Raises ``NotFound``."""
        rows = await self._connection.fetch(SQL["endpoint_scale"], name, replicas, scope.projects, scope.user)
        if not rows:
            raise _not_found(name)
        self._announce(rows[0]["id"])
        return await self.get(scope, name)

    async def delete(self, scope: Scope, name: str) -> EndpointRecord:
        """Mark it deleted and return it as it was. The name is free at once; the replica controller stops the
        replicas. Raises ``NotFound``."""
        record = await self.get(scope, name)
        rows = await self._connection.fetch(SQL["endpoint_delete"], name, scope.projects, scope.user)
        if not rows:
            raise _not_found(name)
        self._announce(rows[0]["id"])
        return record

    def _announce(self, endpoint_id: str) -> None:
        self._notifier.notify_endpoints([EndpointId(endpoint_id)])
        self._notifier.notify_routes([EndpointId(endpoint_id)])

    async def sweep(
        self, _: Scope, after: EndpointId | None, limit: int
    ) -> tuple[list[EndpointId], EndpointId | None]:
        """Look at ``limit`` endpoints after ``after`` (None: at the first ones). Returns those whose replicas
        are not as wanted, and the cursor for the next call; None: there are no more."""
        row = (await self._sweep_connection.fetch(SQL["endpoints_sweep"], after or _FIRST, limit))[0]
        last = None if row["last"] is None else EndpointId(row["last"])
        return [EndpointId(endpoint_id) for endpoint_id in row["endpoints"]], last

    async def to_reconcile(self, _: Scope, among: Collection[EndpointId]) -> list[EndpointSnapshot]:
        """Those that are not deleted, and deleted ones that still have live replicas."""
        found = await self._sweep_connection.fetch(SQL["endpoints_to_reconcile"], list(among))
        replicas = await self._replicas(found)
        return [_snapshot(row, replicas[row["id"]]) for row in found]

    async def _replicas(self, found: Sequence[Row]) -> Mapping[str, list[Any]]:
        """By endpoint, newest first."""
        replicas: defaultdict[str, list[Any]] = defaultdict(list)
        if found:
            for row in await self._db.fetch(SQL["endpoint_sessions"], [row["id"] for row in found]):
                replicas[row["endpoint_id"]].append(row)
        return replicas

    async def _records(self, found: Sequence[Row]) -> list[EndpointRecord]:
        replicas = await self._replicas(found)
        return [
            EndpointRecord(
                _snapshot(row, replicas[row["id"]]),
                row["revision"],
                row["created_at"],
                [_replica_view(replica) for replica in replicas[row["id"]]],
                row["shared_with"],
            )
            for row in found
        ]


def _visible(scope: Scope) -> list[Any]:
    """Conditions: of the caller's projects, or shared with one of them."""
    if scope.projects is None:
        return []
    e = tables.endpoints.c
    return [or_(e.project.in_(scope.projects), e.shared_with.overlap([*scope.projects, "*"]))]


def _snapshot(row: Row, replicas: Sequence[Row]) -> EndpointSnapshot:
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
        ),
        Owner(row["owner"], row["project"], row["isolated"]),
    )


def _not_found(name: str) -> NotFound:
    return NotFound(f"no endpoint {name!r}", next_step="`moorage ps` lists them")


def _replica_view(row: Row) -> resources.ReplicaView:
    return resources.ReplicaView(
        session_id=row["id"],
        name=row["name"],
        status=row["status"],
        reason=row["reason"],
        detail=row["detail"] or row["kernel_detail"] or REASONS[Reason(row["reason"])].text,
        agent_id=row["agent_id"],
        status_since=row["status_since"],
        log_tail=row["log_tail"] or "",
    )
