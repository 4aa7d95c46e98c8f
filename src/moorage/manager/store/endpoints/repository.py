"""Endpoints in Postgres. Their status is not stored: ``serving`` derives it from the replicas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from sqlalchemy import Integer, or_, select

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.ids import EndpointId
from moorage.common.model.labels import Selector
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.spec import EndpointSpec
from moorage.common.views.endpoints import RevisionView
from moorage.common.views.resources import Page
from moorage.manager.identity.keys import IdempotencyKey
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database import selectors
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Listing, Order, fetch_page
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.search import contains
from moorage.manager.store.database.unreadable import needs_newer, read_page
from moorage.manager.store.endpoints.rows import EndpointRecord, read_endpoints, spec_columns
from moorage.manager.store.schema import tables
from moorage.manager.store.sessions import errors as session_errors
from moorage.manager.store.sessions.repository import SessionStore
from moorage.manager.store.sessions.visibility import Naming, mentioned

_E = tables.endpoints.c
_ORDER = Order(
    {"name": _E.name, "created_at": _E.created_at, "user": _E.owner, "project": _E.project},
    [_E.id],
    "name",
)
_REVISIONS = Listing(
    SQL["endpoint_revisions"],
    {"revision": Integer()},
    sorts=("revision",),
    key=("revision",),
    default="-revision",
)


class EndpointStore:
    def __init__(
        self, db: Database, notifier: Notifier, sessions: SessionStore, clock: Clock
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._sessions = sessions
        self._clock = clock
        self._connection = db.dedicated_connection()

    async def create(
        self,
        scope: Scope,
        spec: EndpointSpec,
        *,
        shared_with: Sequence[str] = (),
        user_labels: Mapping[str, str] = MappingProxyType({}),
        idempotency_key: IdempotencyKey | None = None,
    ) -> EndpointRecord:
        """Create an endpoint that belongs to the owner of ``scope``.

        ``shared_with``: other projects that may use it; "*" means all. Raises ``Conflict`` for a
        name in use, and ``NotFound`` for an unknown group."""
        return (
            await self.create_once(
                scope,
                spec,
                shared_with=shared_with,
                user_labels=user_labels,
                idempotency_key=idempotency_key,
            )
        )[0]

    async def create_once(
        self,
        scope: Scope,
        spec: EndpointSpec,
        shared_with: Sequence[str],
        user_labels: Mapping[str, str],
        *,
        idempotency_key: IdempotencyKey | None,
    ) -> tuple[EndpointRecord, bool]:
        """Like ``create``, and safe to repeat: a repeated call returns the endpoint of the first
        one, and True.

        Also raises ``Conflict`` for a key that was used with another request."""
        stored, serving = spec_columns(spec)
        digest = _digest(
            "create", spec.name, spec=spec, shared_with=shared_with, user_labels=user_labels
        )
        row = (
            await self._connection.fetch(
                SQL["endpoint_create"],
                self._clock.new_id(),
                spec.name,
                stored,
                spec.replicas,
                scope.actor,
                spec.groups,
                scope.owner.user,
                scope.owner.project,
                list(shared_with),
                scope.owner.isolated,
                serving,
                *_key_columns(idempotency_key),
                digest,
                dict(user_labels),
            )
        )[0]
        if row["repeated"] is not None:
            return await self._repeated(
                scope, spec.name, row=row, digest=digest, key=idempotency_key
            ), True

        if not row["group_known"]:
            raise _unknown_group(spec)

        if not row["created"] and idempotency_key is not None:
            # A concurrent request may have used the same key.
            columns = _key_columns(idempotency_key)
            if (used := await self._db.fetchrow(SQL["endpoint_key_find"], *columns)) is not None:
                return await self._repeated(
                    scope, spec.name, row=used, digest=digest, key=idempotency_key
                ), True

        if not row["created"] and row["reserved"]:
            raise _reserved(spec.name)

        if not row["created"]:
            raise Conflict(
                f"an endpoint named {spec.name!r} already exists",
                next_step=f"`moorage stop {spec.name}` first, or choose another name",
            )

        self._announce(row["id"])
        return await self.get(scope, spec.name), False

    async def update(
        self,
        scope: Scope,
        before: EndpointRecord,
        spec: EndpointSpec,
        shared_with: Sequence[str],
        *,
        user_labels: Mapping[str, str],
        request: str,
        idempotency_key: IdempotencyKey | None,
    ) -> tuple[EndpointRecord, bool] | None:
        """Replace the specification of the endpoint that was read as ``before``; None if it has
        changed in the meantime. ``request``: identifies the request under its key. Returns the same
        as ``create_once``. Raises ``NotFound`` for an unknown group, and ``Conflict`` if the change
        would replace something that this release cannot read."""
        if before.needs_newer:
            raise needs_newer("endpoint", before.snapshot.name, before.needs_newer)

        (stored, serving) = spec_columns(spec)
        snapshot = before.snapshot
        template = spec.template()
        digest = hashlib.sha256(request.encode()).hexdigest()
        row = (
            await self._connection.fetch(
                SQL["endpoint_update"],
                snapshot.endpoint_id,
                before.version,
                stored,
                serving,
                spec.replicas,
                template if template != snapshot.spec.template() else None,
                list(shared_with),
                before.newest + 1,
                scope.actor,
                *_key_columns(idempotency_key),
                digest,
                scope.owner.isolated,
                spec.rollout.canary,
                spec.groups,
                dict(user_labels),
            )
        )[0]
        if row["repeated"] is not None:
            return await self._repeated(
                scope, spec.name, row=row, digest=digest, key=idempotency_key
            ), True

        if not row["group_known"]:
            raise _unknown_group(spec)
        if not row["changed"] and row["reserved"] is not None:
            raise _reserved(row["reserved"])
        if not row["changed"]:
            return None

        self._announce(snapshot.endpoint_id)
        return await self.get(scope, spec.name), False

    async def _repeated(
        self, scope: Scope, name: str, row: Row, digest: str, *, key: IdempotencyKey | None
    ) -> EndpointRecord:
        record = await self.get(scope, name) if row["request_digest"] == digest else None
        if record is None or record.snapshot.endpoint_id != row["repeated"]:
            raise session_errors.key_reused(key.key if key else "")
        return record

    async def undo(
        self, scope: Scope, record: EndpointRecord, revision: int
    ) -> EndpointRecord | None:
        """Make ``revision`` the target again. None if the endpoint has changed since ``record`` was
        read."""
        snapshot = record.snapshot
        rows = await self._connection.fetch(
            SQL["endpoint_retarget"],
            snapshot.endpoint_id,
            snapshot.revision,
            revision,
            None,
            "",
            "",
        )
        if not rows:
            return None

        self._announce(snapshot.endpoint_id)
        return await self.get(scope, snapshot.name)

    async def promote(self, scope: Scope, record: EndpointRecord) -> EndpointRecord | None:
        """Promote the canary to the stable revision. None if there is no longer a canary."""
        snapshot = record.snapshot
        args = snapshot.endpoint_id, snapshot.revision
        if not await self._connection.fetch(SQL["endpoint_promote"], *args):
            return None
        self._announce(snapshot.endpoint_id)
        return await self.get(scope, snapshot.name)

    async def revisions(
        self, scope: Scope, name: str, paging: Paging = FIRST
    ) -> Page[RevisionView]:
        """Revisions, newest first by default. Raises ``NotFound``."""
        snapshot = (await self.get(scope, name)).snapshot
        rows, following = await _REVISIONS.page(self._db, paging, snapshot.endpoint_id)
        named = await self._sessions.naming(scope, [row["detail"] for row in rows])

        def read(row: Row) -> RevisionView:
            return RevisionView(
                **dict(row) | {"detail": named(row["detail"])},
                current=row["revision"] == snapshot.revision,
                state=_state(row),
            )

        return read_page(
            RevisionView, "revision", rows=rows, read=read, following=following, name="revision"
        )

    async def get(self, scope: Scope, name: str) -> EndpointRecord:
        """Get an endpoint. Raises ``NotFound``, also for a deleted endpoint whose replicas are
        still stopping."""
        e = tables.endpoints.c
        conditions = (e.name == name, e.deleted_at.is_(None), *_visible(scope))
        found = await self._db.select(select(tables.endpoints).where(*conditions))
        if not found:
            raise _not_found(name)

        records = await self._records(scope, found)
        if not records:
            raise _not_found(name)

        return records[0]

    async def page(
        self,
        scope: Scope,
        paging: Paging = FIRST,
        *,
        selector: Selector = (),
        user: str | None = None,
        project: str | None = None,
        search: str | None = None,
    ) -> tuple[list[EndpointRecord], str | None]:
        """Page of endpoints, ordered by name by default, with the cursor of the next page.
        ``search``: a part of the name."""
        conditions: list[Any] = [_E.deleted_at.is_(None), *_visible(scope)]
        conditions += [
            c == v for c, v in ((_E.owner, user), (_E.project, project)) if v is not None
        ]
        if search is not None:
            conditions.append(contains(_E.name, search))
        conditions += selectors.conditions(_E.user_labels, selector)
        statement = select(tables.endpoints).where(*conditions)
        found, following = await fetch_page(self._db, statement, _ORDER, paging)

        return await self._records(scope, found), following

    async def scale(self, scope: Scope, name: str, replicas: int) -> EndpointRecord:
        """Set the number of replicas and reset the failure count. Raises ``NotFound``."""
        rows = await self._connection.fetch(
            SQL["endpoint_scale"], name, replicas, scope.projects, scope.user
        )
        if not rows:
            raise _not_found(name)
        self._announce(rows[0]["id"])
        return await self.get(scope, name)

    async def delete(self, scope: Scope, name: str) -> EndpointRecord:
        """Mark an endpoint as deleted and return its last state. Its name is free immediately; the
        replica controller stops the replicas.

        Raises ``NotFound``."""
        record = await self.get(scope, name)
        rows = await self._connection.fetch(
            SQL["endpoint_delete"], name, scope.projects, scope.user
        )
        if not rows:
            raise _not_found(name)

        self._announce(rows[0]["id"])
        return record

    def _announce(self, endpoint_id: str) -> None:
        self._notifier.notify_endpoints([EndpointId(endpoint_id)])
        self._notifier.notify_routes([EndpointId(endpoint_id)])

    async def _records(self, scope: Scope, found: Sequence[Row]) -> list[EndpointRecord]:
        """Records in the order of ``found``; messages contain names instead of session ids."""
        records = await read_endpoints(self._db, [row["id"] for row in found])
        texts = [
            text
            for record in records
            for text in (record.rollout_detail, *(r.detail for r in record.replicas))
        ]
        if mentioned(texts):
            named = await self._sessions.naming(scope, texts)
            records = [_named(record, named) for record in records]

        by_id = {record.snapshot.endpoint_id: record for record in records}
        return [by_id[EndpointId(row["id"])] for row in found if row["id"] in by_id]


def _named(record: EndpointRecord, named: Naming) -> EndpointRecord:
    replicas = [
        replica.model_copy(update={"detail": named(replica.detail)}) for replica in record.replicas
    ]
    return replace(record, replicas=replicas, rollout_detail=named(record.rollout_detail))


def _visible(scope: Scope) -> list[Any]:
    """Conditions for endpoints that belong to the caller's projects or are shared with one of
    them."""
    if scope.projects is None:
        return []
    e = tables.endpoints.c
    return [or_(e.project.in_(scope.projects), e.shared_with.overlap([*scope.projects, "*"]))]


def _not_found(name: str) -> NotFound:
    return NotFound(f"no endpoint {name!r}", next_step="`moorage ps` lists them")


def _reserved(name: str) -> Conflict:
    return Conflict(
        f"the name {name!r}, or that of one of its adapters, belongs to another project, until 30 "
        "days after its last use",
        next_step="choose another name",
    )


def _unknown_group(spec: EndpointSpec) -> NotFound:
    return NotFound(
        f"resource group {', '.join(map(repr, spec.groups))} does not exist",
        next_step="`moorage groups` lists them",
    )


def _key_columns(key: IdempotencyKey | None) -> tuple[str | None, str | None]:
    return (key.scope, key.key) if key else (None, None)


def _digest(
    kind: str,
    name: str,
    spec: EndpointSpec,
    shared_with: Sequence[str],
    *,
    user_labels: Mapping[str, str],
) -> str:
    """SHA-256 of a request, to detect a different one under the same idempotency key."""
    request = [kind, name, spec.model_dump(mode="json", exclude_defaults=True), sorted(shared_with)]
    request += [dict(user_labels)] if user_labels else []
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _state(row: Row) -> Literal["complete", "failed", ""]:
    return "failed" if row["failed_at"] else "complete" if row["completed_at"] else ""
