"""In-memory sessions and endpoints. Sessions follow a script; without one they stay as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory_pages import page
from scripted_session import CREATED_AT, ROOT, ScriptedSession

from moorage.common.aio.clock import Clock
from moorage.common.link.log_request import LogPiece
from moorage.common.model.errors import AgentUnreachable, Conflict, NotFound, PreconditionFailed
from moorage.common.model.ids import SessionId
from moorage.common.model.labels import Selector, matches
from moorage.common.model.paging import Paging
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import LIVE, TERMINAL, EndpointStatus, Result, Status
from moorage.common.views.endpoints import (
    EndpointPatch,
    EndpointView,
    RevisionView,
    RolloutView,
    ScalingDecision,
)
from moorage.common.views.resources import (
    HistoryEntry,
    Page,
    SessionView,
    StoppedSessions,
    UserHold,
)
from moorage.manager.identity.keys import IdempotencyKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.serving.new_work import is_new_work
from moorage.manager.workloads.session_changes import SessionUpdate

SYSTEM = Scope.system()


def _is_wanted(view: SessionView, statuses: frozenset[Status], results: frozenset[Result]) -> bool:
    has_ended_so = view.status is Status.TERMINATED and view.result in results
    return view.status in statuses or has_ended_so or not (statuses or results)


class MemorySessions:
    """Also the ``Terminator`` and the ``LogSource``. ``next``: the fields of sessions created from
    now on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.scripted: list[ScriptedSession] = []
        self.removable = True
        self.next: dict[str, Any] = {}
        self.created_once: dict[IdempotencyKey, ScriptedSession] = {}

    @property
    def views(self) -> list[SessionView]:
        return [session.view() for session in self.scripted]

    def add(
        self,
        spec: SessionSpec,
        endpoint: str | None = None,
        owner: Owner = ROOT,
        actor: str = "test",
        **fields: Any,
    ) -> ScriptedSession:
        session_id = self._clock.new_id()
        name = spec.name or f"{spec.type}-{session_id[-6:]}"
        given = {
            name: list(value) if name == "script" else value for name, value in self.next.items()
        }
        session = ScriptedSession(
            session_id,
            name,
            spec=spec,
            owner=owner,
            endpoint=endpoint,
            actor=actor,
            **(given | fields),
        )
        self.scripted.append(session)

        return session

    def find(self, ref: str, scope: Scope = SYSTEM) -> ScriptedSession | None:
        seen = [one for one in self.scripted if scope.reads(one.owner.project)]
        exact = (one for one in seen if one.id == ref or (one.name == ref and one.status in LIVE))
        return next(exact, None) or next((one for one in reversed(seen) if one.name == ref), None)

    def one(self, ref: str, scope: Scope = SYSTEM) -> ScriptedSession:
        if (found := self.find(ref, scope)) is None:
            raise NotFound(f"no session {ref!r}", next_step="`moorage ps --all` lists them")
        return found

    async def create(
        self, scope: Scope, spec: SessionSpec, *, template: str | None = None, forced: bool = False
    ) -> SessionView:
        if any(one.name == spec.name and one.status in LIVE for one in self.scripted):
            raise Conflict(
                f"a session named {spec.name!r} already exists", next_step="choose another name"
            )
        return self.add(spec, owner=scope.owner, actor=scope.actor).view()

    async def create_once(
        self,
        scope: Scope,
        spec: SessionSpec,
        *,
        idempotency_key: IdempotencyKey,
        template: str | None = None,
        forced: bool = False,
    ) -> tuple[SessionView, bool]:
        if (first := self.created_once.get(idempotency_key)) is not None:
            if first.spec != spec:
                raise Conflict(f"the Idempotency-Key {idempotency_key.key!r} was used before")
            return first.view(), True

        view = await self.create(scope, spec)
        self.created_once[idempotency_key] = self.scripted[-1]
        return view, False

    async def get(self, scope: Scope, ref: str) -> SessionView:
        return self.one(ref, scope).view()

    async def names(
        self, scope: Scope, session_ids: Collection[SessionId]
    ) -> dict[SessionId, tuple[str, Status]]:
        found = [
            one for one in self.scripted if one.id in session_ids and scope.reads(one.owner.project)
        ]
        return {SessionId(one.id): (one.name, one.status) for one in found}

    async def page(
        self,
        scope: Scope,
        paging: Paging,
        *,
        statuses: frozenset[Status],
        results: frozenset[Result],
        selector: Selector,
        endpoint: str | None,
        pipeline: str | None,
        indexes: Sequence[int],
        elements: bool,
        search: str | None,
        **equal: str | None,
    ) -> Page[SessionView]:
        kept = [
            view
            for view in reversed(self.views)
            if _is_wanted(view, statuses, results)
            and all(value in (None, getattr(view, field)) for field, value in equal.items())
            and endpoint in (None, view.endpoint)
            and pipeline in (None, view.pipeline and view.pipeline.id)
            and (not indexes or (view.pipeline and view.pipeline.index in indexes))
            and (elements or view.pipeline is None or view.pipeline.index is None)
            and (search or "").lower() in view.name.lower()
            and matches(selector, view.user_labels)
            and scope.reads(view.project)
        ]
        return page(kept, paging)

    async def update(self, scope: Scope, session: SessionView, change: SessionUpdate) -> bool:
        found = self.one(session.id, scope)
        found.note_update(change.event, scope.actor, change.detail)
        labels = {**found.spec.user_labels, **(change.labels or {})}
        fields = {
            **(change.fields or {}),
            "user_labels": {key: value for key, value in labels.items() if value is not None},
        }
        if change.name is not None:
            found.name = change.name
            fields["name"] = change.name
        found.spec = found.spec.model_copy(update=fields)
        if change.hold is not None:
            found.held = UserHold.model_validate(
                {"by": scope.actor, "role": change.hold, "since": self._clock.now()}
            )
        elif change.release:
            found.held = None
        return True

    async def remove(self, scope: Scope, session_id: str) -> bool:
        if not self.removable:
            return False
        self.scripted.remove(self.one(session_id, scope))
        return True

    async def stop(self, scope: Scope, ref: str) -> SessionView:
        session = self.one(ref, scope)
        session.stop(Reason.USER_REQUESTED, scope.actor)
        return session.view()

    async def stop_pipeline(self, scope: Scope, pipeline_id: str, clock: Clock) -> None:
        """There are no pipelines in memory."""
        raise AssertionError(pipeline_id)

    async def stop_user(self, scope: Scope, user: str, clock: Clock) -> StoppedSessions:
        theirs = [
            one
            for one in self.scripted
            if (one.owner.user, one.endpoint) == (user, None)
            and scope.reads(one.owner.project)
            and one.view().status not in TERMINAL
        ]
        for session in theirs:
            session.stop(Reason.USER_REQUESTED, scope.actor)

        return StoppedSessions(user=user, asked_at=clock.now(), sessions=len(theirs))

    async def history(self, scope: Scope, ref: str, paging: Paging) -> Page[HistoryEntry]:
        return page(self.one(ref, scope).history, paging)

    async def read(
        self,
        scope: Scope,
        session: SessionView,
        *,
        tail_lines: int,
        follow: bool,
        attempt: int | None,
        hostname: str,
        timestamps: bool = False,
        since_ms: int = 0,
        offset: int | None = None,
    ) -> AsyncIterator[LogPiece]:
        """The scripted log, as from an agent that has no byte numbers."""
        scripted = self.one(session.id, scope)
        lines = b"".join(scripted.log).splitlines(keepends=True)
        for piece in lines[-tail_lines:] if tail_lines else scripted.log:
            yield LogPiece(piece)
            if scripted.log_breaks:
                scripted.log_breaks -= 1
                del scripted.log[: scripted.log_rotates]
                raise AgentUnreachable("the agent is gone, as scripted")


@dataclass
class _Endpoint:
    id: str
    spec: EndpointSpec
    owner: Owner
    revision: int = 1
    version: int = 1
    actor: str = "test"
    user_labels: Mapping[str, str] = field(default_factory=dict)
    revisions: list[EndpointSpec] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.revisions.append(self.spec)


class MemoryEndpoints:
    """``starts_replicas``: creating an endpoint creates its replicas; otherwise an endpoint has
    none."""

    def __init__(self, sessions: MemorySessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        self.starts_replicas = False
        self._endpoints: dict[str, _Endpoint] = {}
        self.created_once: dict[IdempotencyKey | None, EndpointSpec] = {}
        self.scalings: list[ScalingDecision] = []

    @property
    def specs(self) -> dict[str, EndpointSpec]:
        return {name: endpoint.spec for name, endpoint in self._endpoints.items()}

    def add(self, spec: EndpointSpec, owner: Owner = ROOT, **fields: Any) -> None:
        self._endpoints[spec.name] = _Endpoint(self._clock.new_id(), spec, owner)
        for number in range(spec.replicas if self.starts_replicas else 0):
            self._sessions.add(
                spec.session(f"{spec.name}-r{number + 1}"), spec.name, owner, **fields
            )

    def replicas(self, name: str) -> list[ScriptedSession]:
        return [session for session in self._sessions.scripted if session.endpoint == name]

    async def create(
        self,
        scope: Scope,
        spec: EndpointSpec,
        *,
        shared_with: Sequence[str] = (),
        user_labels: Mapping[str, str],
        idempotency_key: IdempotencyKey | None = None,
    ) -> tuple[EndpointView, bool]:
        first = self.created_once.get(idempotency_key)
        if first is not None and idempotency_key is not None:
            if first != spec:
                raise Conflict(f"the Idempotency-Key {idempotency_key.key!r} was used before")
            return await self.get(scope, spec.name), True

        if spec.name in self._endpoints:
            raise Conflict(
                f"an endpoint named {spec.name!r} exists already", next_step="choose another name"
            )

        self.add(spec, scope.owner)
        self._endpoints[spec.name].user_labels = user_labels
        self._endpoints[spec.name].actor = scope.actor
        self.created_once[idempotency_key] = spec

        return await self.get(scope, spec.name), False

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
        view = await self.get(scope, name)
        if if_match is not None and view.version not in if_match:
            raise PreconditionFailed(f"endpoint {name!r} has changed", next_step="read it again")

        endpoint = self._endpoints[name]
        spec = patch.merged(endpoint.spec, endpoint.spec.replicas)
        new_work = is_new_work(endpoint.spec, endpoint.spec.replicas, spec)
        await check(spec, endpoint.spec, new_work)
        if spec.template() != endpoint.spec.template():
            endpoint.revisions.append(spec)
            endpoint.revision = len(endpoint.revisions)

        endpoint.spec = spec
        endpoint.version = endpoint.version + 1
        changed = {**endpoint.user_labels, **(patch.user_labels or {})}
        endpoint.user_labels = {key: value for key, value in changed.items() if value is not None}

        return await self.get(scope, name), False

    async def revisions(self, scope: Scope, name: str, paging: Paging) -> Page[RevisionView]:
        await self.get(scope, name)
        endpoint = self._endpoints[name]
        revisions = [
            RevisionView(
                revision=number,
                created_at=CREATED_AT,
                created_by=endpoint.actor,
                current=number == endpoint.revision,
                state="complete" if self.replicas(name) else "",
                spec=spec.template(),
            )
            for number, spec in reversed([*enumerate(endpoint.revisions, 1)])
        ]
        return page(revisions, paging)

    async def decisions(self, scope: Scope, name: str, paging: Paging) -> Page[ScalingDecision]:
        await self.get(scope, name)
        return page(self.scalings, paging)

    async def undo(self, scope: Scope, name: str, revision: int | None) -> EndpointView:
        await self.get(scope, name)
        endpoint = self._endpoints[name]
        endpoint.revision = revision or endpoint.revision - 1
        if not endpoint.revision:
            raise Conflict(f"endpoint {name!r} has no earlier revision", next_step="name one")
        endpoint.spec = endpoint.revisions[endpoint.revision - 1]
        return await self.get(scope, name)

    async def promote(self, scope: Scope, name: str) -> EndpointView:
        await self.get(scope, name)
        raise Conflict(f"endpoint {name!r} has no canary", next_step="set rollout.canary")

    async def get(self, scope: Scope, name: str) -> EndpointView:
        endpoint = self._endpoints.get(name)
        if endpoint is None or not scope.reads(endpoint.owner.project):
            raise NotFound(f"no endpoint {name!r}")

        replicas = self.replicas(name)
        ready = sum(one.status is Status.RUNNING for one in replicas)
        failed = [one for one in replicas if one.status is Status.ERROR]
        status = EndpointStatus.LOADING if replicas else EndpointStatus.QUEUED
        status = EndpointStatus.READY if ready else status

        return EndpointView(
            id=endpoint.id,
            name=name,
            status=EndpointStatus.DEGRADED if failed else status,
            replicas=endpoint.spec.replicas,
            ready=ready,
            reason=failed[-1].reason if failed else Reason.NONE,
            detail=failed[-1].detail if failed else "",
            failures=len(failed),
            revision=endpoint.revision,
            version=endpoint.version,
            rollout=RolloutView(
                state="complete" if ready else "progressing",
                revision=endpoint.revision,
                newest=len(endpoint.revisions),
                updated=len(replicas),
                ready=ready,
                old=0,
            ),
            created_at=CREATED_AT,
            user=endpoint.owner.user,
            project=endpoint.owner.project,
            user_labels=dict(endpoint.user_labels),
            spec=endpoint.spec,
            sessions=[one.replica() for one in replicas],
        )

    async def page(
        self,
        scope: Scope,
        paging: Paging,
        *,
        selector: Selector = (),
        search: str | None = None,
        **equal: str | None,
    ) -> Page[EndpointView]:
        seen = [
            await self.get(scope, name)
            for name, one in reversed(self._endpoints.items())
            if scope.reads(one.owner.project)
            and matches(selector, one.user_labels)
            and (search or "").lower() in name.lower()
            and all(value in (None, getattr(one.owner, field)) for field, value in equal.items())
        ]
        return page(seen, paging)

    async def scale(self, scope: Scope, name: str, replicas: int) -> EndpointView:
        await self.get(scope, name)
        endpoint = self._endpoints[name]
        endpoint.spec = endpoint.spec.model_copy(update={"replicas": replicas})
        endpoint.version += 1
        return await self.get(scope, name)

    async def delete(self, scope: Scope, name: str) -> EndpointView:
        view = await self.get(scope, name)
        for replica in self.replicas(name):
            replica.stop(Reason.ENDPOINT_DELETED)
        del self._endpoints[name]
        return view.model_copy(update={"status": EndpointStatus.STOPPED, "replicas": 0})
