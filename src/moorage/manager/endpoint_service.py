"""Endpoint service for the API: the store's endpoints, with the status derived from their
replicas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from moorage.common.model.labels import MAX_LABELS, Selector
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.reasons import Reason
from moorage.common.model.roles import Role
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import TERMINAL, EndpointStatus
from moorage.common.views.endpoints import (
    EndpointPatch,
    EndpointView,
    LateSuccessor,
    ReplicaView,
    RevisionView,
    RolloutView,
    ScalingDecision,
)
from moorage.common.views.resources import Page
from moorage.manager.identity.keys import IdempotencyKey
from moorage.manager.identity.scope import Scope
from moorage.manager.serving.endpoint_plan import plan_endpoint
from moorage.manager.serving.lifetime import holds_next, late_successor, next_ready_at
from moorage.manager.serving.new_work import is_new_work
from moorage.manager.serving.replicas import consecutive_failures
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot
from moorage.manager.serving.status import endpoint_status, replica_state, rollout_state
from moorage.manager.store.endpoints.loads import LoadStore
from moorage.manager.store.endpoints.repository import EndpointStore
from moorage.manager.store.endpoints.rows import EndpointRecord

_ENDED_SHOWN = 5


_ATTEMPTS = 20


class EndpointService:
    """All methods may raise ``StoreUnavailable``; those that take a name raise ``NotFound``."""

    def __init__(self, store: EndpointStore, loads: LoadStore, clock: Clock) -> None:
        self._store = store
        self._loads = loads
        self._clock = clock

    async def create(
        self,
        scope: Scope,
        spec: EndpointSpec,
        *,
        shared_with: Sequence[str] = (),
        user_labels: Mapping[str, str] = MappingProxyType({}),
        idempotency_key: IdempotencyKey | None = None,
    ) -> tuple[EndpointView, bool]:
        """Create an endpoint. Returns it, and whether an earlier request under ``idempotency_key``
        created it.

        Raises ``Conflict`` for a name in use, and ``NotFound`` for an unknown group."""
        record, repeated = await self._store.create_once(
            scope,
            spec,
            shared_with=shared_with,
            user_labels=user_labels,
            idempotency_key=idempotency_key,
        )
        return self._view(scope, record), repeated

    async def get(self, scope: Scope, name: str) -> EndpointView:
        return self._view(scope, await self._store.get(scope, name))

    async def page(
        self,
        scope: Scope,
        paging: Paging = FIRST,
        *,
        selector: Selector = (),
        user: str | None = None,
        project: str | None = None,
        search: str | None = None,
    ) -> Page[EndpointView]:
        """Page of endpoints, ordered by name by default. ``search``: a part of the name."""
        records, following = await self._store.page(
            scope, paging, selector=selector, user=user, project=project, search=search
        )
        return Page[EndpointView](
            items=[self._view(scope, record) for record in records], next=following
        )

    async def update(
        self,
        scope: Scope,
        name: str,
        patch: EndpointPatch,
        *,
        if_match: frozenset[int] | None = None,
        idempotency_key: IdempotencyKey | None = None,
        check: Callable[[EndpointSpec, EndpointSpec, bool], Awaitable[None]],
    ) -> tuple[EndpointView, bool]:
        """Apply a patch. ``if_match``: the versions to which it may be applied; None means any.
        ``check`` raises for a specification that the caller may not run; it also receives the
        previous one, and whether the change causes new work. Returns the same as ``create``. Raises
        ``PreconditionFailed``, and ``ValidationError`` for a patch with an invalid result."""
        request = f"patch {name} {patch.model_dump_json(exclude_unset=True)}"
        for _ in range(_ATTEMPTS):
            before = await self._store.get(scope, name)
            spec = patch.merged(before.snapshot.spec, before.snapshot.wanted)
            new_work = is_new_work(before.snapshot.spec, before.snapshot.wanted, spec)
            await check(spec, before.snapshot.spec, new_work)
            shared_with = before.shared_with if patch.shared_with is None else patch.shared_with
            matches = if_match is None or before.version in if_match
            if not matches and idempotency_key is None:
                raise _changed(before)

            # A request that has already been applied is recognised by its key, although the version
            # now differs.
            against = before if matches else replace(before, version=-1)
            labels = _changed_labels(before, patch)
            made = await self._store.update(
                scope,
                against,
                spec=spec,
                shared_with=shared_with,
                user_labels=labels,
                request=request,
                idempotency_key=idempotency_key,
            )
            if made is not None:
                return self._view(scope, made[0]), made[1]
            if not matches:
                raise _changed(before)

        raise Conflict(f"endpoint {name!r} keeps changing", next_step="try again")

    async def scale(self, scope: Scope, name: str, replicas: int) -> EndpointView:
        """Set the number of replicas. This also restarts an endpoint that was given up after
        repeated failures.

        Raises ``InvalidInput`` for a number outside its autoscaling limits."""
        scaling = (await self._store.get(scope, name)).snapshot.spec.autoscale
        if scaling is not None and not scaling.min <= replicas <= scaling.max:
            raise InvalidInput(
                f"replicas = {replicas} is outside the limits of endpoint {name!r}, which is "
                "scaled "
                f"automatically from {scaling.min} to {scaling.max}",
                field="replicas",
                next_step="change autoscale.min and autoscale.max, or choose a number between them",
            )

        return self._view(scope, await self._store.scale(scope, name, replicas))

    async def revisions(
        self, scope: Scope, name: str, paging: Paging = FIRST
    ) -> Page[RevisionView]:
        return await self._store.revisions(scope, name, paging)

    async def undo(self, scope: Scope, name: str, revision: int | None) -> EndpointView:
        """Return to an earlier revision; None means the one served before.

        Raises ``Conflict`` if there is none, and ``NotFound`` for an unknown revision."""
        for _ in range(_ATTEMPTS):
            record = await self._store.get(scope, name)
            stable = record.snapshot.stable
            target = revision or (
                stable.revision if stable is not None else record.snapshot.fallback
            )
            if target is None:
                raise Conflict(
                    f"endpoint {name!r} has no earlier revision that was complete",
                    next_step=(
                        f"`moorage rollout history {name}` lists its revisions; name one of them"
                    ),
                )

            if target > record.newest:
                raise NotFound(
                    f"endpoint {name!r} has no revision {target}",
                    next_step=f"`moorage rollout history {name}` lists its revisions",
                )

            if target == record.snapshot.revision:
                raise Conflict(
                    f"endpoint {name!r} already has revision {target}", next_step="name another"
                )

            if (made := await self._store.undo(scope, record, target)) is not None:
                return self._view(scope, made)

        raise Conflict(f"endpoint {name!r} keeps changing", next_step="try again")

    async def promote(self, scope: Scope, name: str) -> EndpointView:
        """Promote the canary to the stable revision. Raises ``Conflict`` if there is none."""
        record = await self._store.get(scope, name)
        made = (
            await self._store.promote(scope, record) if record.snapshot.stable is not None else None
        )
        if made is None:
            raise Conflict(
                f"endpoint {name!r} has no canary",
                next_step=(
                    f"`moorage endpoints set {name} rollout.canary=10` makes the next revision a "
                    "canary"
                ),
            )

        return self._view(scope, made)

    async def decisions(
        self, scope: Scope, name: str, paging: Paging = FIRST
    ) -> Page[ScalingDecision]:
        """Scaling decisions, newest first by default."""
        return await self._loads.decisions(scope, name, paging)

    async def delete(self, scope: Scope, name: str) -> EndpointView:
        """Delete the endpoint. Its name is free immediately; the replicas stop soon afterwards."""
        view = self._view(scope, await self._store.delete(scope, name))
        return view.model_copy(update={"status": EndpointStatus.STOPPED, "replicas": 0})

    def _view(self, scope: Scope, record: EndpointRecord) -> EndpointView:
        return visible_part(scope, endpoint_view(record, self._clock.now()))


def _changed_labels(before: EndpointRecord, patch: EndpointPatch) -> dict[str, str]:
    """The changed labels. Raises ``InvalidInput`` if there are too many."""
    changed = before.user_labels | (patch.user_labels or {})
    labels = {key: value for key, value in changed.items() if value is not None}
    if len(labels) > MAX_LABELS:
        raise InvalidInput(
            f"the endpoint would have {len(labels)} labels; {MAX_LABELS} are allowed",
            field="user_labels",
            next_step="remove some: a value of null removes a label",
        )
    return labels


def _changed(before: EndpointRecord) -> PreconditionFailed:
    return PreconditionFailed(
        f'endpoint {before.snapshot.name!r} has changed: its ETag is now "{before.version}"',
        next_step="read it again, and send the change with the new ETag",
    )


def visible_part(scope: Scope, view: EndpointView) -> EndpointView:
    """The part that viewers, and projects with which it is shared, may see: its name, state and
    numbers. Pure."""
    if scope.reads(view.project) and scope.role is not Role.VIEWER:
        return view
    return view.model_copy(
        update={"spec": None, "sessions": [], "detail": "", "user": "", "shared_with": []}
    )


def endpoint_view(record: EndpointRecord, now: datetime) -> EndpointView:
    """The view of an endpoint. Pure."""
    snapshot = record.snapshot
    replicas = [_shown(*pair) for pair in zip(record.replicas, snapshot.replicas, strict=True)]
    loads = [r.load for r in snapshot.replicas if r.serves and r.load is not None]
    caches = [load.kv_cache for load in loads if load.kv_cache is not None]
    plan = plan_endpoint(snapshot, now)
    failed = consecutive_failures(snapshot)
    last = next(
        (view for view in replicas if failed and view.session_id == failed[0].session_id), None
    )
    ended = [view for view in replicas if view.status in TERMINAL]

    return EndpointView(
        id=snapshot.endpoint_id,
        name=snapshot.name,
        status=endpoint_status(snapshot),
        replicas=snapshot.wanted,
        ready=sum(replica.serves for replica in snapshot.replicas),
        **_why(snapshot, last),
        failures=plan.failures,
        retry_at=plan.retry_at,
        suspended_until=snapshot.stopped_by.until if snapshot.stopped_by is not None else None,
        revision=snapshot.revision,
        version=record.version,
        rollout=_rollout(record),
        created_at=record.created_at,
        user=snapshot.owner.user,
        project=snapshot.owner.project,
        shared_with=record.shared_with,
        user_labels=record.user_labels,
        spec=snapshot.spec,
        running=sum(load.running for load in loads),
        waiting=sum(load.waiting for load in loads) + snapshot.waiting,
        kv_cache=round(sum(caches) / len(caches), 3) if caches else None,
        late_successor=_late(record, now),
        start_times=[history.view(group) for group, history in sorted(snapshot.starts.items())],
        expected_at=next_ready_at(snapshot, now),
        scalings=record.scalings,
        needs_newer_manager=record.needs_newer,
        sessions=[view for view in replicas if view.status not in TERMINAL] + ended[:_ENDED_SHOWN],
    )


def _why(snapshot: EndpointSnapshot, failed: ReplicaView | None) -> dict[str, Any]:
    """Why the endpoint does not serve as desired. ``failed``: its last replica, if it failed."""
    if (stopped_by := snapshot.stopped_by) is not None:
        detail = (
            f"the budget of {stopped_by.budget} is exhausted until "
            f"{stopped_by.until:%Y-%m-%dT%H:%M:%SZ}"
        )
        return {"reason": Reason.BUDGET_EXHAUSTED, "detail": detail}
    return {} if failed is None else {"reason": failed.reason, "detail": failed.detail}


def _late(record: EndpointRecord, now: datetime) -> LateSuccessor | None:
    late = late_successor(record.snapshot, now)
    if late is None or (ends_at := late[0].ends_at) is None:
        return None
    return LateSuccessor(
        session_id=late[0].session_id,
        ends_at=ends_at,
        expected_at=late[1],
        reason=holds_next(record.snapshot),
    )


def _shown(view: ReplicaView, replica: ReplicaSnapshot) -> ReplicaView:
    load = replica.load if replica.serves else None
    update: dict[str, Any] = {"state": str(replica_state(replica))}
    if load is not None:
        update |= {"running": load.running, "waiting": load.waiting, "kv_cache": load.kv_cache}
    return view.model_copy(update=update)


def _rollout(record: EndpointRecord) -> RolloutView:
    snapshot = record.snapshot
    live = [r for r in snapshot.replicas if r.status not in TERMINAL]
    updated = [r for r in live if r.revision == snapshot.revision]

    return RolloutView(
        state=rollout_state(snapshot, record.rolled_back),
        revision=snapshot.revision,
        newest=record.newest,
        updated=len(updated),
        ready=sum(r.serves for r in updated),
        old=len(live) - len(updated),
        canary=snapshot.spec.rollout.canary if snapshot.stable is not None else 0,
        rolled_back=record.rolled_back,
        reason=record.rollout_reason,
        detail=record.rollout_detail,
    )
