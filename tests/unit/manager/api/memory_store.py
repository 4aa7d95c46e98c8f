"""The API's seams kept in memory: what the handlers are tested against, without a database or an agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
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
from moorage.manager.identity.keys import ApiKey, IdempotencyKey, Owner

_V = TypeVar("_V")


class MemoryStore(MemoryKeys, MemoryAccessTokens):
    """Behaves as ``ApiStore`` promises. ``away``: the database does not answer."""

    def __init__(self, clock: Clock) -> None:
        MemoryKeys.__init__(self, clock)
        MemoryAccessTokens.__init__(self, clock)
        self._clock = clock
        self.away = False
        self.broken = False
        self.lookups = 0
        self.sessions: list[SessionView] = []
        self.idempotency_key: dict[IdempotencyKey, tuple[SessionSpec, SessionView]] = {}
        self.moves: dict[str, list[HistoryEntry]] = {}
        self.endpoints: dict[str, EndpointView] = {}
        self.groups = {"default": GroupOptions()}
        self.quotas: dict[tuple[str, str], QuotaView] = {}
        self.agents = [_agent("node-1", clock.now())]

    async def ping(self) -> None:
        if self.away:
            raise StoreUnavailable
        if self.broken:
            raise ConnectionResetError("secret detail of the database")

    async def find_key(self, sha256: str) -> ApiKey | None:
        await self.ping()
        self.lookups += 1
        return self.keys.get(sha256)

    async def create_session(self, spec: SessionSpec, *, actor: str, owner: Owner) -> SessionView:
        await self.ping()
        made = self._clock.new_id()
        name = spec.name or f"session-{made[-6:]}"
        if any(s.name == name and s.status in LIVE for s in self.sessions):
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
        self.sessions.append(view)
        self._note(view, None, "create", actor)
        return view

    async def create_session_once(
        self, spec: SessionSpec, *, actor: str, owner: Owner, idempotency_key: IdempotencyKey
    ) -> tuple[SessionView, bool]:
        await self.ping()
        if idempotency_key in self.idempotency_key:
            asked, view = self.idempotency_key[idempotency_key]
            if asked != spec:
                raise Conflict(f"the Idempotency-Key {idempotency_key.key!r} was used before")
            return view, True
        view = await self.create_session(spec, actor=actor, owner=owner)
        self.idempotency_key[idempotency_key] = (spec, view)
        return view, False

    async def never_fits(self, spec: SessionSpec) -> list[str]:
        await self.ping()
        gpus = parse_slots(spec.resources).get("cuda.device", 0)
        return [f"1 agent: needs {gpus} cuda.device, has 8 even when empty"] if gpus > 8 else []

    async def get_session(self, ref: str, *, project: str | None = None) -> SessionView:
        await self.ping()
        seen = [view for view in self.sessions if project in (None, view.project)]
        for view in seen:
            if view.id == ref or (view.name == ref and view.status in LIVE):
                return view
        for view in reversed(seen):
            if view.name == ref:
                return view
        raise NotFound(f"no session {ref!r}", next_step="`moorage ps --all` lists them")

    async def list_sessions(
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
        await self.ping()
        kept = [
            view
            for view in reversed(self.sessions)
            if (statuses is None or view.status in statuses)
            and resource_group in (None, view.resource_group)
            and type in (None, view.type)
            and name in (None, view.name)
            and endpoint in (None, view.endpoint)
            and project in (None, view.project)
        ]
        shown, following = _page(kept, cursor, limit)
        return Page[SessionView](items=shown, next=following)

    async def stop_session(self, ref: str, *, actor: str) -> SessionView:
        view = await self.get_session(ref)
        if view.status not in LIVE:
            return view
        stopped = view.model_copy(update={"status": Status.CANCELLED, "revision": view.revision + 1})
        self.sessions[self.sessions.index(view)] = stopped
        self._note(stopped, view.status, "stop", actor)
        return stopped

    async def why(self, ref: str) -> WhyView:
        view = await self.get_session(ref)
        return WhyView(
            session_id=view.id,
            name=view.name,
            status=view.status,
            since=view.status_since,
            resource_group=view.resource_group,
            text="nobody schedules here",
        )

    async def plan_session(self, spec: SessionSpec, *, owner: Owner) -> PlanView:
        await self.get_group(spec.resource_group)
        place = KernelPlaceView(agent_id=self.agents[0].id, devices=[])
        return PlanView(
            text=f"for {owner.user}", fits=True, resource_group=spec.resource_group, places=[place]
        )

    async def history(self, ref: str) -> list[HistoryEntry]:
        return self.moves[(await self.get_session(ref)).id]

    async def create_endpoint(self, spec: EndpointSpec, *, actor: str, owner: Owner) -> EndpointView:
        await self.ping()
        if spec.name in self.endpoints:
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
        self.endpoints[spec.name] = view
        return view

    async def get_endpoint(self, name: str) -> EndpointView:
        await self.ping()
        if name not in self.endpoints:
            raise NotFound(f"no endpoint {name!r}")
        return self.endpoints[name]

    async def list_endpoints(self, *, cursor: str | None, limit: int) -> Page[EndpointView]:
        await self.ping()
        shown, following = _page(list(reversed(self.endpoints.values())), cursor, limit)
        return Page[EndpointView](items=shown, next=following)

    async def scale_endpoint(self, name: str, replicas: int, *, actor: str) -> EndpointView:
        view = await self.get_endpoint(name)
        self.endpoints[name] = view.model_copy(update={"replicas": replicas})
        return self.endpoints[name]

    async def delete_endpoint(self, name: str, *, actor: str) -> EndpointView:
        view = await self.get_endpoint(name)
        del self.endpoints[name]
        return view.model_copy(update={"status": EndpointStatus.STOPPED})

    async def list_agents(self) -> list[AgentView]:
        await self.ping()
        return self.agents

    async def get_agent(self, agent_id: str) -> AgentView:
        for view in await self.list_agents():
            if view.id == agent_id:
                return view
        raise NotFound(f"no agent {agent_id!r}")

    async def forget_agent(self, agent_id: str, *, actor: str) -> AgentView:
        view = await self.get_agent(agent_id)
        if view.status is AgentStatus.ALIVE:
            raise Conflict(f"agent {agent_id!r} is ALIVE")
        self.agents.remove(view)
        return view

    async def list_groups(self) -> list[GroupView]:
        return [await self.get_group(name) for name in sorted(self.groups)]

    async def get_group(self, name: str) -> GroupView:
        await self.ping()
        if name not in self.groups:
            raise NotFound(f"no resource group {name!r}")
        return GroupView(name=name, options=self.groups[name], agents=0, pending=0, running=0)

    async def put_group(self, name: str, options: GroupOptions, *, actor: str) -> GroupView:
        await self.ping()
        self.groups[name] = options
        return await self.get_group(name)

    async def list_quotas(self) -> list[QuotaView]:
        await self.ping()
        return [self.quotas[key] for key in sorted(self.quotas)]

    async def get_quota(self, scope: Scope, name: str) -> QuotaView:
        await self.ping()
        if (scope, name) not in self.quotas:
            raise NotFound(f"{scope} {name!r} has no quota")
        return self.quotas[scope, name]

    async def put_quota(self, scope: Scope, name: str, limits: QuotaLimits, *, actor: str) -> QuotaView:
        await self.ping()
        self.quotas[scope, name] = QuotaView(
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
        return self.quotas[scope, name]

    async def delete_quota(self, scope: Scope, name: str) -> QuotaView:
        view = await self.get_quota(scope, name)
        del self.quotas[scope, name]
        return view

    def _note(self, view: SessionView, before: Status | None, event: str, actor: str) -> None:
        self.moves.setdefault(view.id, []).append(
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
