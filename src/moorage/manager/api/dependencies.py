"""Interfaces through which the API uses the rest of the manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from moorage.common.aio.clock import Clock
from moorage.common.http.server import DEFAULT_LIMITS, Limits
from moorage.common.link.log_request import LogPiece
from moorage.common.model.commands import Channel, ExecEnd, ExecSpec, Size
from moorage.common.model.spec import SessionSpec
from moorage.common.telemetry import TraceSink
from moorage.common.views.decisions import DecisionPage, RunView
from moorage.common.views.peers import (
    CaView,
    JoinReply,
    JoinRequest,
    JoinTokenSpec,
    NewJoinTokenView,
    RotateCa,
)
from moorage.common.views.pending import PlanView, WhyView
from moorage.common.views.resources import Page, SessionView, StoppedSessions
from moorage.common.views.usage import AgentStats, SessionStats, SessionUsage
from moorage.common.views.workspaces import WorkspaceList
from moorage.manager.api.console_services import ConsoleServices
from moorage.manager.api.identity_dependencies import (
    AccessTokens,
    Audit,
    ConsoleSessions,
    Keys,
    Managers,
    Oidc,
    Peers,
    Projects,
    Secrets,
    SshKeys,
    Users,
)
from moorage.manager.api.metering_dependencies import Budgets, LimitShares, UsageRecords
from moorage.manager.api.pipeline_dependencies import Pipelines
from moorage.manager.api.resource_dependencies import (
    Agents,
    Endpoints,
    GroupAliases,
    Groups,
    Quotas,
    SessionRecords,
    Sessions,
    Templates,
)
from moorage.manager.api.watching_dependencies import OccupancyHistories, Overviews
from moorage.manager.console import ModelAddress
from moorage.manager.identity.audience import Audience
from moorage.manager.identity.scope import Scope
from moorage.manager.workloads.idle import StoredIdle


class Usage(Protocol):
    async def of_session(
        self, scope: Scope, ref: str, *, seconds: int, limit: int
    ) -> SessionStats: ...
    async def of_agent(self, agent_id: str) -> AgentStats: ...
    async def top_sessions(self, scope: Scope, *, sort: str, limit: int) -> list[SessionUsage]: ...
    async def top_agents(self) -> list[AgentStats]: ...


class Idle(Protocol):
    async def find(self, scope: Scope, session_id: str) -> StoredIdle | None: ...
    async def extend(
        self, scope: Scope, session_id: str, seconds: float, extensions: int
    ) -> bool: ...


class Reloads(Protocol):
    async def request(self, scope: Scope, session_id: str, *, main_only: bool) -> int: ...


class Leases(Protocol):
    async def older_leads(self) -> bool: ...


class Decisions(Protocol):
    async def page(
        self,
        scope: Scope,
        group: str,
        since: datetime,
        until: datetime,
        *,
        cursor: str | None,
        limit: int,
    ) -> DecisionPage: ...

    async def runs(
        self,
        scope: Scope,
        group: str,
        since: datetime,
        until: datetime,
        *,
        cursor: str | None,
        limit: int,
    ) -> Page[RunView]: ...


class ApiStore(Protocol):
    """The store as the API uses it. All methods may raise ``StoreUnavailable``; those that take a
    name or a ``ref`` raise ``NotFound``. ``scope``: whose data the call sees, and who owns what it
    creates; ``actor`` goes into the history. A ``cursor`` is the ``next`` of the previous page.
    """

    @property
    def sessions(self) -> Sessions: ...
    @property
    def templates(self) -> Templates: ...
    @property
    def pipelines(self) -> Pipelines: ...
    @property
    def agents(self) -> Agents: ...
    @property
    def idle(self) -> Idle: ...
    @property
    def reloads(self) -> Reloads: ...
    @property
    def session_records(self) -> SessionRecords: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def usage_records(self) -> UsageRecords: ...
    @property
    def limit_shares(self) -> LimitShares: ...
    @property
    def budgets(self) -> Budgets: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def group_aliases(self) -> GroupAliases: ...
    @property
    def overviews(self) -> Overviews: ...
    @property
    def occupancy_history(self) -> OccupancyHistories: ...
    @property
    def quotas(self) -> Quotas: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def decisions(self) -> Decisions: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def ssh_keys(self) -> SshKeys: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def console_sessions(self) -> ConsoleSessions: ...
    @property
    def oidc(self) -> Oidc: ...
    @property
    def users(self) -> Users: ...
    @property
    def projects(self) -> Projects: ...
    @property
    def access_tokens(self) -> AccessTokens: ...
    @property
    def peers(self) -> Peers: ...
    @property
    def managers(self) -> Managers: ...
    async def ping(self) -> None: ...


class Terminator(Protocol):
    async def stop(self, scope: Scope, ref: str) -> SessionView: ...
    async def stop_pipeline(self, scope: Scope, pipeline_id: str, clock: Clock) -> None: ...
    async def stop_user(self, scope: Scope, user: str, clock: Clock) -> StoppedSessions: ...


class Explanations(Protocol):
    async def why(self, scope: Scope, ref: str) -> WhyView: ...

    async def plan_session(self, scope: Scope, spec: SessionSpec) -> PlanView:
        """Where a session would be placed now, or what prevents it. Nothing is written."""
        ...

    async def infeasible(self, spec: SessionSpec) -> list[str]:
        """Why no agent of its group could ever run it, one line per reason; empty if one could."""
        ...


class LogSource(Protocol):
    def read(
        self,
        scope: Scope,
        session: SessionView,
        *,
        tail_lines: int,
        follow: bool,
        attempt: int | None,
        hostname: str,
        timestamps: bool,
        since_ms: int,
        offset: int | None,
    ) -> AsyncIterator[LogPiece]:
        """The log of a kernel of the session's newest attempt, or of ``attempt``: its last
        ``tail_lines`` lines (0: the whole stored log), then, with ``follow``, new output.
        ``timestamps``: lines begin with their times. ``since_ms``: unix time of the first; 0: any.
        ``offset``: from this byte on, and no further than to where bytes are missing. Pieces tell
        the numbers of their first bytes.

        Raises ``AgentUnreachable``, ``Conflict`` or ``NotFound`` before the first chunk. Cancelled
        when the client disconnects.
        """
        ...


class RegistrationSource(Protocol):
    """Registration of agents and proxies. Raises ``Forbidden``, ``Conflict`` or
    ``InvalidInput``."""

    async def create_token(self, spec: JoinTokenSpec, *, actor: str) -> NewJoinTokenView: ...

    async def join(self, request: JoinRequest) -> JoinReply: ...

    async def rotate_ca(self, request: RotateCa, *, actor: str) -> CaView: ...

    async def ca(self) -> CaView: ...


class RunningCommand(Protocol):
    """A command that runs in a session. ``end``: its outcome, or None while it is not known."""

    end: ExecEnd | None

    async def send(self, data: bytes) -> None: ...
    async def end_input(self) -> None: ...
    async def resize(self, size: Size) -> None: ...

    async def read(self) -> tuple[Channel, bytes] | None:
        """The next chunk of output; None after the end."""
        ...


class CommandSource(Protocol):
    async def check(self, session: SessionView) -> None:
        """Raises ``Conflict`` or ``AgentUnreachable`` if the session cannot run commands now."""
        ...

    def open(
        self, session: SessionView, spec: ExecSpec, *, actor: str
    ) -> AbstractAsyncContextManager[RunningCommand]:
        """Run the command; leaving the context terminates it. Raises the errors of ``check``."""
        ...

    def ask(
        self, session: SessionView, hostname: str, code: str
    ) -> AbstractAsyncContextManager[RunningCommand]:
        """A request about runs of code, as JSON; the answer is the output. Leaving the context ends
        no run. Raises ``NotFound``, ``AgentUnreachable``."""
        ...


class EventSource(Protocol):
    def stream(self, audience: Audience, last_event_id: str) -> AsyncGenerator[bytes]:
        """The text of an event stream. A part that begins with a colon is a heartbeat. Raises
        ``StoreUnavailable`` for too many streams."""
        ...

    def close(self) -> None: ...


class WorkspaceSource(Protocol):
    async def ask(self, remove: str = "") -> WorkspaceList:
        """The workspaces of all connected agents, or those of session ``remove`` that were deleted;
        without the names of the sessions. Raises ``Conflict`` if the workspace is in use."""
        ...


async def no_metrics() -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class ApiServices:
    """``registration`` is None if the links have no TLS. ``checks`` serves ``/readyz``: "ok" or an
    error per component; ``degraded``: what else needs a person. ``metrics``: Prometheus text for
    everybody; ``tenant_metrics``: for those who see all projects. ``tracer``: None while traces are
    off. ``validating`` is held while a large body is validated. ``on_plain_key`` is told the name
    of a key that has come over loopback without TLS."""

    store: ApiStore
    endpoints: Endpoints
    terminator: Terminator
    explanations: Explanations
    logs: LogSource
    execs: CommandSource
    workspaces: WorkspaceSource
    events: EventSource
    checks: Callable[[], Awaitable[dict[str, str]]]
    metrics: Callable[[], Awaitable[bytes]]
    max_body_bytes: int
    version: str
    clock: Clock
    limits: Limits = DEFAULT_LIMITS
    registration: RegistrationSource | None = None
    models: ModelAddress = field(default_factory=ModelAddress)
    console: ConsoleServices = field(default_factory=ConsoleServices)
    tracer: TraceSink | None = None
    degraded: Callable[[], dict[str, str]] = dict
    tenant_metrics: Callable[[], Awaitable[bytes]] = no_metrics
    validating: asyncio.Lock = field(default_factory=asyncio.Lock)
    on_plain_key: Callable[[str], None] = lambda name: None
