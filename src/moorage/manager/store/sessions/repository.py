"""Sessions in Postgres: creates, reads and deletes them. Status changes are in ``lifecycle``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Unpack

import asyncpg
from sqlalchemy import Integer, Text, and_, cast, or_, select, text

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.labels import Selector
from moorage.common.model.paging import FIRST, Paging, SessionMatch
from moorage.common.model.reasons import Reason
from moorage.common.model.reuse import request_hash
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, TERMINAL, Result, Status
from moorage.common.telemetry import TraceSink
from moorage.common.views import resources
from moorage.manager.crypto.ssh_keys import derive_key_pair
from moorage.manager.identity.keys import IdempotencyKey
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database import selectors
from moorage.manager.store.database.batch_writer import BatchWriter
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Listing, Order, fetch_page
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL, literals
from moorage.manager.store.database.rows import as_uuid
from moorage.manager.store.database.search import contains, newest
from moorage.manager.store.database.unreadable import needs_newer, read_page
from moorage.manager.store.schema import tables
from moorage.manager.store.sessions import creation as new_sessions
from moorage.manager.store.sessions import errors as session_errors
from moorage.manager.store.sessions import rows, spec_kernels, visibility
from moorage.manager.store.sessions.creation import NewSession

V = TypeVar("V", resources.SessionView, resources.HistoryEntry)

# The predicate of the partial index sessions_live_newest. Postgres cannot match the index to a list
# of parameters.
_LIVE = text(f"sessions.status NOT IN ({literals(TERMINAL)})")
_S = tables.sessions.c
_E = tables.endpoints.c
_SHARED = tables.sessions.alias("shared")
_SESSIONS = select(
    *(column for column in _S if column is not _S.spec),
    cast(_S.spec, Text).label("spec_text"),
    _E.name.label("endpoint_name"),
    *(_SHARED.c[name].label(f"shared_{name}") for name in rows.MIRRORED),
    *tables.STEP,
).select_from(
    tables.sessions.outerjoin(tables.endpoints, _S.endpoint_id == _E.id)
    .outerjoin(_SHARED, _S.adopted_from == _SHARED.c.id)
    .outerjoin(tables.pipeline_steps, tables.pipeline_steps.c.session_id == _S.id)
    .outerjoin(tables.pipelines, tables.pipelines.c.id == tables.pipeline_steps.c.pipeline_id)
)
_ORDER = Order(
    {
        "created_at": _S.created_at,
        "name": _S.name,
        "user": _S.owner,
        "project": _S.project,
        "resource_group": _S.resource_group,
        "priority": _S.priority,
        "status": _S.status,
    },
    [_S.id],
    "-created_at",
)
_HISTORY = Listing(
    SQL["history_list"],
    {"revision": Integer()},
    sorts=("revision",),
    key=("revision",),
    default="revision",
)


class SessionStore:
    """A create is durable once the call returns; concurrent creates share one statement.
    ``tracer``: traces starts."""

    def __init__(
        self,
        db: Database,
        notifier: Notifier,
        clock: Clock,
        lost_grace_s: float,
        *,
        tracer: TraceSink | None = None,
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock
        self._lost_grace_s = lost_grace_s
        self._tracer = tracer
        self._create_connection = db.dedicated_connection()

        # Whether the last create found a quota on pending sessions, which only the longer statement
        # checks.
        self._has_pending_quotas = False
        self._creates: BatchWriter[NewSession, Any] = BatchWriter(
            "create", self._write_creates, clock
        )

    # -- create --

    async def create(
        self,
        scope: Scope,
        spec: SessionSpec,
        *,
        endpoint_id: EndpointId | None = None,
        endpoint_revision: int | None = None,
        term: int | None = None,
        template: str | None = None,
        forced: bool = False,
    ) -> resources.SessionView:
        """Create a session that belongs to the owner of ``scope``. ``term``: the term of the leader
        that creates it as a replica of this revision of an endpoint. ``template``: the template
        from which it was created. ``forced``: it does not reuse another session's run.

        Raises ``Conflict`` for the name of a live session, a type that the group does not allow or
        a former leader; ``NotFound`` for an unknown group or dependency; ``Forbidden`` or
        ``InvalidInput`` for an invalid dependency; and ``QuotaExceeded`` when a quota on pending
        sessions is exhausted.
        """
        new = self.new(scope, spec, endpoint_id, None)
        new = replace(
            new, term=term, endpoint_revision=endpoint_revision, template=template, forced=forced
        )
        return self._created(scope, new, await self._submit(new))

    async def create_once(
        self,
        scope: Scope,
        spec: SessionSpec,
        *,
        idempotency_key: IdempotencyKey,
        template: str | None = None,
        forced: bool = False,
    ) -> tuple[resources.SessionView, bool]:
        """Like ``create``, and safe to repeat: a repeated call returns the session of the first
        one, and True.

        Also raises ``Conflict`` for a key that was used with another request.
        """
        new = replace(
            self.new(scope, spec, None, idempotency_key), template=template, forced=forced
        )
        try:
            row = await self._submit(new)
        except asyncpg.UniqueViolationError:  # a concurrent request used the same key
            row = None

        if row is not None and not row["repeated"]:
            rejected = session_errors.create_rejected(scope, spec, new.owner, row)
            if row["created_at"] is not None or rejected is not None:
                return self._created(scope, new, row), False

        before = await self._db.fetchrow(
            SQL["idempotency_find"], idempotency_key.scope, idempotency_key.key
        )
        if before is None:
            raise session_errors.name_taken(new.spec, new.name)
        if before["request_digest"] != new.request_digest:
            raise session_errors.key_reused(idempotency_key.key)

        return await self.get(scope, before["session_id"]), True

    def new(
        self,
        scope: Scope,
        spec: SessionSpec,
        endpoint_id: EndpointId | None,
        idempotency_key: IdempotencyKey | None,
    ) -> NewSession:
        """Build a session to be created, with its ids."""
        session_id = self._clock.new_id()
        name = spec.name or f"{spec.type}-{session_id[-8:]}"
        kernel = self._clock.new_id()
        secret = self._clock.secret()
        digest = new_sessions.digest(spec) if idempotency_key else None
        user_labels = spec.user_labels
        if user_labels:  # they have their own column, and do not affect what runs
            spec = spec.model_copy(update={"user_labels": {}})

        slots = spec_kernels.total_slots(spec)
        reused = spec.reuse not in (None, "never")
        new = NewSession(
            session_id,
            name,
            spec=spec,
            slots=slots,
            endpoint_id=endpoint_id,
            actor=scope.actor,
            owner=scope.owner,
            kernel_id=kernel,
            secret=secret,
            idempotency_key=idempotency_key,
            request_digest=digest,
            user_labels=user_labels,
            request_hash=request_hash(spec.model_dump(mode="json"), scope.owner.project)
            if reused
            else None,
            traceparent=new_sessions.traceparent(self._tracer, scope.trace, session_id),
        )
        if spec.cluster is None:
            return new

        keys = derive_key_pair(self._clock.secret(32), f"moorage-{session_id}")
        return replace(new, subs=spec_kernels.new_sub_kernels(spec, self._clock), keys=keys)

    async def _submit(self, new: NewSession) -> Any:
        row = await self._creates.submit(new)
        if row["created_at"] is None and new.request_hash is not None and not row["repeated"]:
            # An equal request may have come first, in which case this one shares its run.
            row = await self._creates.submit(new)
        return row

    def _created(self, scope: Scope, new: NewSession, row: Any) -> resources.SessionView:
        """The view of the written session, without reading it back. Raises the error if nothing was
        written."""
        created = row["created_at"]
        if created is None:
            rejected = session_errors.create_rejected(scope, new.spec, new.owner, row)
            raise rejected or session_errors.name_taken(new.spec, new.name)

        self._notifier.notify_pending([SessionId(new.id)])
        first = resources.KernelView(
            id=new.kernel_id,
            attempt=1,
            status=Status.PENDING,
            agent_id=None,
            status_since=created,
        )
        subs = [
            first.model_copy(
                update={
                    "id": sub.kernel_id,
                    "role": "sub",
                    "index": sub.index,
                    "hostname": f"sub{sub.index}",
                }
            )
            for sub in new.subs
        ]
        view = resources.SessionView(
            id=new.id,
            name=new.name,
            type=new.spec.type,
            status=Status.PENDING,
            result=Result.UNDEFINED,
            reason=Reason.NONE,
            detail="",
            resource_group=new.spec.resource_group,
            priority=new.spec.priority,
            attempt=1,
            revision=1,
            created_at=created,
            status_since=created,
            deadline_at=row["deadline_at"],
            user=new.owner.user,
            project=new.owner.project,
            isolated=new.owner.isolated,
            hold=rows.begin_time_hold(None, new.spec.starts_at, created),
            slots=new.slots,
            spec=new.spec,
            template=new.template,
            user_labels=dict(new.user_labels),
            kernels=[first, *subs],
            hostnames_resolve=rows.cluster_names(new.spec, new.owner.isolated),
        )
        if row["adopted_from"] is None:
            return view

        self._notifier.notify_kernels([SessionId(new.id)])
        shown = rows.mirrored(row) | {"adopted_from": row["adopted_from"], "hold": None}
        return resources.SessionView.model_validate(
            view.model_dump(exclude={"spec"}) | shown | {"spec": view.spec}
        )

    async def _write_creates(self, items: Sequence[NewSession]) -> Sequence[Any]:
        items = await self._with_shared_runs(items)
        dependencies = new_sessions.dependency_columns(items)
        columns = new_sessions.columns(items, self._lost_grace_s)
        isolated = [i.owner.isolated for i in items]
        templates = [i.template for i in items]
        labels = [json.dumps(i.user_labels) if i.user_labels else "{}" for i in items]
        traceparents = [i.traceparent for i in items]
        created: list[Any] = []
        needs_checks = bool(dependencies[0]) or any(
            i.subs or i.request_hash or i.term is not None for i in items
        )
        if not needs_checks and not self._has_pending_quotas:
            # The short statement creates nothing if it finds quotas on pending sessions.
            created = await self._create_connection.fetch(
                SQL["session_create"], *columns, isolated, templates, labels, traceparents
            )
            self._has_pending_quotas = created[0]["has_pending_quotas"]

        if needs_checks or self._has_pending_quotas:
            created = await self._create_connection.fetch(
                SQL["session_create_checked"],
                *columns,
                *dependencies,
                *new_sessions.cluster_columns(items),
                [i.term for i in items],
                isolated,
                [i.endpoint_revision for i in items],
                templates,
                labels,
                [i.request_hash for i in items],
                [i.adopted_from for i in items],
                traceparents,
            )
            self._has_pending_quotas = created[0]["has_pending_quotas"]

        return created

    async def _with_shared_runs(self, items: Sequence[NewSession]) -> Sequence[NewSession]:
        """Add the equal sessions whose runs new ones share."""
        asking = [
            (n, i) for n, i in enumerate(items) if i.request_hash is not None and not i.forced
        ]
        if not asking:
            return items

        found = await self._create_connection.fetch(
            SQL["reuse_find"],
            [item.owner.project for _, item in asking],
            [item.request_hash for _, item in asking],
            [item.spec.reuse for _, item in asking],
            0.0,
        )
        shared = {asking[row["n"] - 1][0]: row["id"] for row in found}
        return [replace(item, adopted_from=shared.get(n)) for n, item in enumerate(items)]

    # -- read --

    async def find(self, scope: Scope, ref: str) -> SessionId:
        """The id of the session that ``get`` would return. Raises ``NotFound``."""
        row = await self._db.fetchrow(
            SQL["session_find"], as_uuid(ref), ref, scope.projects, scope.owner.project
        )
        if row is None:
            raise session_errors.session_not_found(ref)
        return SessionId(row["id"])

    async def get(self, scope: Scope, ref: str) -> resources.SessionView:
        """Get a session by id or by name: the live session with that name, otherwise the newest.

        Raises ``NotFound``, and ``Conflict`` for one that needs a newer manager to be shown."""
        found = await self.find(scope, ref)
        page = await self._select(scope, FIRST, tables.sessions.c.id == found)
        for row in page.unreadable:
            raise needs_newer("session", row.name, row.detail)
        if not page.items:
            raise session_errors.session_not_found(ref)
        return page.items[0]

    async def page(
        self,
        scope: Scope,
        paging: Paging = FIRST,
        *,
        statuses: frozenset[Status] = frozenset(),
        results: frozenset[Result] = frozenset(),
        selector: Selector = (),
        endpoint: str | None = None,
        pipeline: str | None = None,
        indexes: Sequence[int] = (),
        elements: bool = True,
        search: str | None = None,
        **equal: Unpack[SessionMatch],
    ) -> resources.Page[resources.SessionView]:
        """Page of sessions, newest first by default, with one of ``statuses``, or ended with one of
        ``results``; all if both are empty. ``pipeline``: its id. ``indexes``: only array elements
        with these. ``elements``: whether array elements are listed. ``search``: a part of the name.

        Raises ``InvalidInput`` unless the cursor is a page's ``next``."""
        s = tables.sessions.c
        conditions: list[Any] = []
        if statuses or results:
            ended_so = and_(s.status == Status.TERMINATED, s.result.in_(sorted(results)))
            conditions.append(or_(s.status.in_(sorted(statuses)), *([ended_so] if results else [])))
        if statuses and not results and statuses <= LIVE:
            conditions.append(_LIVE)

        conditions += [
            s["owner" if name == "user" else name] == str(value)
            for name, value in equal.items()
            if value is not None
        ]
        conditions += selectors.conditions(s.user_labels, selector)
        if search is not None:
            conditions.append(contains(s.name, search))
            if not (statuses and not results and statuses <= LIVE):
                conditions.append(newest(s.created_at))
        if endpoint is not None:
            e = tables.endpoints.c
            conditions.append(s.endpoint_id.in_(select(e.id).where(e.name == endpoint)))
        t = tables.pipeline_steps.c
        if pipeline is not None:
            conditions.append(s.id.in_(select(t.session_id).where(t.pipeline_id == pipeline)))
        if indexes:
            conditions.append(t.index.in_(indexes))
        if not elements:
            conditions.append(or_(t.index.is_(None), t.index < 0))

        return await self._select(scope, paging, *conditions)

    async def _select(
        self, scope: Scope, paging: Paging, *conditions: Any
    ) -> resources.Page[resources.SessionView]:
        conditions = (*conditions, _S.removed_at.is_(None))
        if scope.projects is not None:
            conditions = (*conditions, _S.project.in_(scope.projects))

        statement = _SESSIONS.where(*conditions)
        shown, following = await fetch_page(self._db, statement, _ORDER, paging)
        kernels = await self._db.fetch(SQL["session_kernels"], [r["id"] for r in shown])
        of_session = defaultdict[str, list[Any]](list)
        for kernel in kernels:
            of_session[kernel["session_id"]].append(kernel)

        page = read_page(
            resources.SessionView,
            "session",
            rows=shown,
            read=lambda row: rows.session_view(row, of_session[row["id"]], row["endpoint_name"]),
            following=following,
        )
        return page.model_copy(update={"items": await self._as_seen(scope, page.items)})

    async def history(
        self, scope: Scope, ref: str, paging: Paging = FIRST
    ) -> resources.Page[resources.HistoryEntry]:
        """History of a session, oldest first by default. Raises ``NotFound``."""
        found, following = await _HISTORY.page(self._db, paging, await self.find(scope, ref))
        page = read_page(
            resources.HistoryEntry,
            "entry",
            rows=found,
            read=lambda row: resources.HistoryEntry(**dict(row)),
            following=following,
            name="revision",
        )
        return page.model_copy(update={"items": await self._as_seen(scope, page.items)})

    async def _as_seen(self, scope: Scope, views: list[V]) -> list[V]:
        """Views with names instead of ids in messages, and without output that the caller may not
        see."""
        texts = [text for view in views for text in visibility.messages(view)]
        return visibility.as_seen(scope, views, await self.naming(scope, texts))

    async def naming(self, scope: Scope, texts: Iterable[str]) -> visibility.Naming:
        """Replace ids with session names in these messages, for this caller."""
        ids = visibility.mentioned(texts)
        names = {id: name for id, (name, _) in (await self.names(scope, ids)).items()}
        return visibility.naming(scope, names)

    async def names(
        self, scope: Scope, session_ids: Collection[SessionId]
    ) -> dict[SessionId, tuple[str, str]]:
        """Name, status and stored status of each session that the caller may see."""
        ids = sorted(session_id for session_id in session_ids if as_uuid(session_id))
        found = await self._db.fetch(SQL["session_names"], ids, scope.projects) if ids else []
        return {SessionId(row["id"]): (row["name"], row["status"]) for row in found}

    async def dependency_states(
        self, scope: Scope, spec: SessionSpec
    ) -> dict[str, list[SessionId]]:
        """The sessions in ``depends_on`` by state: "met", "unmet" or "failed". Raises the errors of
        ``create`` for an invalid dependency."""
        states: dict[str, list[SessionId]] = {"failed": [], "unmet": [], "met": []}
        if not spec.depends_on:
            return states

        refs = [dependency.session for dependency in spec.depends_on]
        ids = [as_uuid(ref) for ref in refs]
        conditions = [dependency.on for dependency in spec.depends_on]
        found = await self._db.fetch(
            SQL["dependency_states"], refs, ids, conditions, scope.owner.project
        )
        for position, row in enumerate(found):
            if row["why"] is not None:
                raise session_errors.invalid_dependency(
                    scope,
                    spec,
                    owner=scope.owner,
                    position=position,
                    why=row["why"],
                    project=row["project"],
                )

            states[row["state"]].append(SessionId(row["id"]))

        return states
