"""In-memory store for tests of the API's handlers: no database, no agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from memory_access_tokens import MemoryAccessTokens
from memory_keys import ADMIN_KEY as ADMIN_KEY
from memory_keys import MEMBER_KEY as MEMBER_KEY
from memory_keys import MemoryKeys

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, InvalidInput, MoorageError, NotFound, StoreUnavailable
from moorage.common.model.group_options import QuotaLimits, Scope
from moorage.common.model.reasons import Reason
from moorage.common.model.slots import parse_amount, parse_slots
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import LIVE, AgentStatus, EndpointStatus, Result, SessionType, Status
from moorage.common.views.pending import KernelPlaceView, PlanView, WhyView
from moorage.common.views.resources import (
    AgentView,
    EndpointView,
    GroupOptions,
    GroupView,
    HistoryEntry,
    Page,
    QuotaView,
    SessionView,
)
from moorage.manager.identity.keys import IdempotencyKey, Owner

_V = TypeVar("_V")


@dataclass
class Database:
    """``away``: it does not answer; ``broken``: it fails with an error that clients must not see."""

    away: bool = False
    broken: bool = False

    def check(self) -> None:
        if self.away:
            raise StoreUnavailable
        if self.broken:
            raise ConnectionResetError("secret detail of the database")


class MemorySessions:
    """Also the ``Terminator``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self.views: list[SessionView] = []
        self.created_once: dict[IdempotencyKey, tuple[SessionSpec, SessionView]] = {}
        self.entries: dict[str, list[HistoryEntry]] = {}

    async def create(self, spec: SessionSpec, *, actor: str, owner: Owner) -> SessionView:
        self._database.check()
        made = self._clock.new_id()
        name = spec.name or f"session-{made[-6:]}"
        if any(s.name == name and s.status in LIVE for s in self.views):
            raise Conflict(f"a session named {name!r} lives already", next_step="choose another name")
        now = self._clock.now()
        view = SessionView(
            id=made,
            name=name,
            type=spec.type,
            status=Status.PENDING,
            result=Result.UNDEFINED,
            reason=Reason.NONE,
            detail="",
            resource_group=spec.resource_group,
            priority=spec.priority,
            attempt=0,
            revision=1,
            created_at=now,
            status_since=now,
            user=owner.user,
            project=owner.project,
            slots=parse_slots(spec.resources),
            spec=spec,
        )
        self.views.append(view)
        self._note(view, None, "create", actor)
        return view

    async def create_once(
        self, spec: SessionSpec, *, actor: str, owner: Owner, idempotency_key: IdempotencyKey
    ) -> tuple[SessionView, bool]:
        self._database.check()
        if idempotency_key in self.created_once:
            asked, view = self.created_once[idempotency_key]
            if asked != spec:
                raise Conflict(f"the Idempotency-Key {idempotency_key.key!r} was used before")
            return view, True
        view = await self.create(spec, actor=actor, owner=owner)
        self.created_once[idempotency_key] = (spec, view)
        return view, False

    async def get(self, ref: str, *, project: str | None = None) -> SessionView:
        self._database.check()
        seen = [view for view in self.views if project in (None, view.project)]
        for view in seen:
            if view.id == ref or (view.name == ref and view.status in LIVE):
                return view
        for view in reversed(seen):
            if view.name == ref:
                return view
        raise NotFound(f"no session {ref!r}", next_step="`moorage ps --all` lists them")

    async def page(
        self,
        *,
        statuses: frozenset[Status] | None,
        resource_group: str | None,
        type: SessionType | None,
        name: str | None,
        endpoint: str | None,
        project: str | None,
        cursor: str | None,
        limit: int,
    ) -> Page[SessionView]:
        self._database.check()
        kept = [
            view
            for view in reversed(self.views)
            if (statuses is None or view.status in statuses)
            and resource_group in (None, view.resource_group)
            and type in (None, view.type)
            and name in (None, view.name)
            and endpoint in (None, view.endpoint)
            and project in (None, view.project)
        ]
        shown, following = _page(kept, cursor, limit)
        return Page[SessionView](items=shown, next=following)

    async def stop(self, ref: str, *, actor: str) -> SessionView:
        view = await self.get(ref)
        if view.status not in LIVE:
            return view
        stopped = view.model_copy(update={"status": Status.CANCELLED, "revision": view.revision + 1})
        self.views[self.views.index(view)] = stopped
        self._note(stopped, view.status, "stop", actor)
        return stopped

    async def history(self, ref: str) -> list[HistoryEntry]:
        return self.entries[(await self.get(ref)).id]

    def _note(self, view: SessionView, before: Status | None, event: str, actor: str) -> None:
        self.entries.setdefault(view.id, []).append(
            HistoryEntry(
                revision=view.revision,
                at=self._clock.now(),
                event=event,
                from_status=before,
                to_status=view.status,
                reason=view.reason,
                actor=actor,
                detail="",
            )
        )


class MemoryExplanations:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def why(self, ref: str) -> WhyView:
        view = await self._store.sessions.get(ref)
        return WhyView(
            session_id=view.id,
            name=view.name,
            status=view.status,
            since=view.status_since,
            resource_group=view.resource_group,
            text="nobody schedules here",
        )

    async def plan_session(self, spec: SessionSpec, *, owner: Owner) -> PlanView:
        await self._store.groups.get(spec.resource_group)
        place = KernelPlaceView(agent_id=self._store.agents.views[0].id, devices=[])
        return PlanView(
            text=f"for {owner.user}", fits=True, resource_group=spec.resource_group, places=[place]
        )

    async def infeasible(self, spec: SessionSpec) -> list[str]:
        self._store.database.check()
        gpus = parse_slots(spec.resources).get("cuda.device", 0)
        return [f"1 agent: needs {gpus} cuda.device, has 8 even when empty"] if gpus > 8 else []


class MemoryEndpoints:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self.views: dict[str, EndpointView] = {}

    async def create(self, spec: EndpointSpec, *, actor: str, owner: Owner) -> EndpointView:
        self._database.check()
        if spec.name in self.views:
            raise Conflict(f"an endpoint named {spec.name!r} exists already", next_step="choose another name")
        view = EndpointView(
            id=self._clock.new_id(),
            name=spec.name,
            status=EndpointStatus.QUEUED,
            replicas=spec.replicas,
            ready=0,
            revision=1,
            created_at=self._clock.now(),
            user=owner.user,
            project=owner.project,
            spec=spec,
        )
        self.views[spec.name] = view
        return view

    async def get(self, name: str) -> EndpointView:
        self._database.check()
        if name not in self.views:
            raise NotFound(f"no endpoint {name!r}")
        return self.views[name]

    async def page(self, *, cursor: str | None, limit: int) -> Page[EndpointView]:
        self._database.check()
        shown, following = _page(list(reversed(self.views.values())), cursor, limit)
        return Page[EndpointView](items=shown, next=following)

    async def scale(self, name: str, replicas: int) -> EndpointView:
        view = await self.get(name)
        self.views[name] = view.model_copy(update={"replicas": replicas})
        return self.views[name]

    async def delete(self, name: str) -> EndpointView:
        view = await self.get(name)
        del self.views[name]
        return view.model_copy(update={"status": EndpointStatus.STOPPED})


class MemoryAgents:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.views = [_agent("node-1", clock.now())]

    async def all(self) -> list[AgentView]:
        self._database.check()
        return self.views

    async def get(self, agent_id: str) -> AgentView:
        for view in await self.all():
            if view.id == agent_id:
                return view
        raise NotFound(f"no agent {agent_id!r}")

    async def forget(self, agent_id: str, *, actor: str) -> AgentView:
        view = await self.get(agent_id)
        if view.status is AgentStatus.ALIVE:
            raise Conflict(f"agent {agent_id!r} is ALIVE")
        self.views.remove(view)
        return view


class MemoryGroups:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.options = {"default": GroupOptions()}

    async def all(self) -> list[GroupView]:
        return [await self.get(name) for name in sorted(self.options)]

    async def get(self, name: str) -> GroupView:
        self._database.check()
        if name not in self.options:
            raise NotFound(f"no resource group {name!r}")
        return GroupView(name=name, options=self.options[name], agents=0, pending=0, running=0)

    async def put(self, name: str, options: GroupOptions, *, actor: str) -> GroupView:
        self._database.check()
        self.options[name] = options
        return await self.get(name)


class MemoryQuotas:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self.views: dict[tuple[str, str], QuotaView] = {}

    async def all(self) -> list[QuotaView]:
        self._database.check()
        return [self.views[key] for key in sorted(self.views)]

    async def get(self, scope: Scope, name: str) -> QuotaView:
        self._database.check()
        if (scope, name) not in self.views:
            raise NotFound(f"{scope} {name!r} has no quota")
        return self.views[scope, name]

    async def put(self, scope: Scope, name: str, limits: QuotaLimits, *, actor: str) -> QuotaView:
        self._database.check()
        self.views[scope, name] = QuotaView(
            scope=scope,
            name=name,
            slots={slot: parse_amount(slot, amount) for slot, amount in limits.slots.items()},
            sessions=limits.sessions,
            pending=limits.pending,
            used={},
            running=0,
            waiting=0,
            changed_at=self._clock.now(),
            changed_by=actor,
        )
        return self.views[scope, name]

    async def delete(self, scope: Scope, name: str) -> QuotaView:
        view = await self.get(scope, name)
        del self.views[scope, name]
        return view


class MemoryStore:
    """Behaves as ``ApiStore`` promises, as far as the tests need it."""

    def __init__(self, clock: Clock) -> None:
        self.database = Database()
        self.sessions = MemorySessions(self.database, clock)
        self.endpoints = MemoryEndpoints(self.database, clock)
        self.agents = MemoryAgents(self.database, clock)
        self.groups = MemoryGroups(self.database)
        self.quotas = MemoryQuotas(self.database, clock)
        self.keys = MemoryKeys(self.database.check, clock)
        self.access_tokens = MemoryAccessTokens(self.sessions.get, clock)
        self.explanations = MemoryExplanations(self)

    async def ping(self) -> None:
        self.database.check()


class MemoryLogs:
    """Gives ``chunks``, then waits for ``more`` while it is followed. ``closed``: a read has ended."""

    def __init__(self) -> None:
        self.chunks: list[bytes | MoorageError | RuntimeError] = []
        self.more: asyncio.Queue[bytes | MoorageError | None] = asyncio.Queue()
        self.asked: list[tuple[str, int, bool]] = []
        self.closed = asyncio.Event()

    async def read(
        self,
        session: SessionView,
        *,
        tail_lines: int,
        follow: bool,
        attempt: int | None,
        hostname: str,
    ) -> AsyncIterator[bytes]:
        self.asked.append((session.name, tail_lines, follow))
        try:
            for chunk in self.chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
            while follow and (item := await self.more.get()) is not None:
                if isinstance(item, MoorageError):
                    raise item
                yield item
        finally:
            self.closed.set()


def _page(kept: Sequence[_V], cursor: str | None, limit: int) -> tuple[list[_V], str | None]:
    if cursor is not None and not cursor.isdigit():
        raise InvalidInput(f"{cursor!r} is no cursor of ours", next_step="use `next` of the page before")
    begin = int(cursor or 0)
    following = str(begin + limit) if begin + limit < len(kept) else None
    return list(kept[begin : begin + limit]), following


def _agent(name: str, now: datetime) -> AgentView:
    return AgentView(
        id=name,
        status=AgentStatus.ALIVE,
        resource_group="default",
        address="127.0.0.1",
        version="0.1.0",
        arch="x86_64",
        runtimes=["process"],
        engines=["custom"],
        labels={},
        draining=False,
        connected_since=now,
        last_seen=now,
        offers=[],
        kernels=0,
    )
