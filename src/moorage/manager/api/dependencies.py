"""Interfaces through which the API uses the rest of the manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from moorage.common.aio.clock import Clock
from moorage.common.model.commands import Channel, ExecEnd, ExecSpec, Size
from moorage.common.model.group_options import QuotaLimits, Scope
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import SessionType, Status
from moorage.common.views.access_tokens import AccessTokenSpec, AccessTokenView, AppView, NewAccessTokenView
from moorage.common.views.decisions import DecisionPage, RunView
from moorage.common.views.keys import KeySpec, KeyView, NewKeyView
from moorage.common.views.peers import (
    JoinReply,
    JoinRequest,
    JoinTokenSpec,
    JoinTokenView,
    NewJoinTokenView,
    PeerView,
)
from moorage.common.views.pending import PlanView, WhyView
from moorage.common.views.resources import (
    AgentEvent,
    AgentView,
    EndpointView,
    GroupOptions,
    GroupView,
    HistoryEntry,
    Page,
    QuotaView,
    SessionView,
    WorkspaceList,
)
from moorage.common.views.usage import AgentStats, SessionStats, SessionUsage
from moorage.manager.identity.keys import ApiKey, IdempotencyKey, Owner


class ApiStore(Protocol):
    """The store as the API sees it. Every method may raise ``StoreUnavailable``; unknown names raise
    ``NotFound``.

    A ``ref`` is a session's id, else the name of a live session, else the newest session of that name.
    ``actor`` is recorded in the history; ``owner`` owns what is created. A ``cursor`` is the ``next`` of the
    previous page.
    """

    async def create_session(self, spec: SessionSpec, *, actor: str, owner: Owner) -> SessionView: ...

    async def create_session_once(
        self, spec: SessionSpec, *, actor: str, owner: Owner, idempotency_key: IdempotencyKey
    ) -> tuple[SessionView, bool]:
        """The same. Repeating ``idempotency_key`` returns the first request's session, and True. Raises
        ``Conflict`` if the key was used for a different request."""
        ...

    async def never_fits(self, spec: SessionSpec) -> list[str]:
        """The reasons why no agent of the group could ever hold it; empty if one could."""
        ...

    async def get_session(self, ref: str, *, project: str | None = None) -> SessionView:
        """``project``: only sessions of this project."""
        ...

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
    ) -> Page[SessionView]: ...

    async def stop_session(self, ref: str, *, actor: str) -> SessionView: ...

    async def why(self, ref: str) -> WhyView: ...

    async def plan_session(self, spec: SessionSpec, *, owner: Owner) -> PlanView:
        """Where it would be placed now, or what is missing. Creates nothing."""
        ...

    async def history(self, ref: str) -> list[HistoryEntry]: ...

    async def create_endpoint(self, spec: EndpointSpec, *, actor: str, owner: Owner) -> EndpointView: ...

    async def get_endpoint(self, name: str) -> EndpointView: ...

    async def list_endpoints(self, *, cursor: str | None, limit: int) -> Page[EndpointView]: ...

    async def scale_endpoint(self, name: str, replicas: int, *, actor: str) -> EndpointView: ...

    async def delete_endpoint(self, name: str, *, actor: str) -> EndpointView: ...

    async def list_agents(self) -> list[AgentView]: ...

    async def get_agent(self, agent_id: str) -> AgentView: ...
    async def cordon_agent(
        self, agent_id: str, *, actor: str, drain: bool = False, stop_after_s: float | None = None
    ) -> AgentView: ...

    async def uncordon_agent(self, agent_id: str, *, actor: str) -> AgentView: ...

    async def agent_history(self, agent_id: str, limit: int = 50) -> list[AgentEvent]: ...

    async def forget_agent(self, agent_id: str, *, actor: str) -> AgentView: ...

    async def session_stats(self, ref: str, *, seconds: int, limit: int) -> SessionStats: ...

    async def agent_stats(self, agent_id: str) -> AgentStats: ...

    async def top_sessions(self, *, sort: str, limit: int, project: str | None) -> list[SessionUsage]: ...

    async def top_agents(self) -> list[AgentStats]: ...

    async def list_groups(self) -> list[GroupView]: ...

    async def get_group(self, name: str) -> GroupView: ...

    async def put_group(self, name: str, options: GroupOptions, *, actor: str) -> GroupView: ...

    async def list_quotas(self) -> list[QuotaView]: ...

    async def get_quota(self, scope: Scope, name: str) -> QuotaView: ...

    async def put_quota(self, scope: Scope, name: str, limits: QuotaLimits, *, actor: str) -> QuotaView: ...

    async def delete_quota(self, scope: Scope, name: str) -> QuotaView: ...

    async def list_decisions(
        self, group: str, since: datetime, until: datetime, *, cursor: str | None, limit: int
    ) -> DecisionPage: ...

    async def list_runs(
        self, group: str, since: datetime, until: datetime, *, cursor: str | None, limit: int
    ) -> Page[RunView]: ...

    async def create_key(self, spec: KeySpec, *, actor: str) -> NewKeyView: ...

    async def list_keys(self) -> list[KeyView]: ...

    async def get_key(self, name: str) -> KeyView: ...

    async def revoke_key(self, name: str, *, actor: str) -> KeyView: ...

    async def list_apps(self, session_id: str) -> list[AppView]: ...

    async def create_access_token(
        self, session_id: str, app: str, spec: AccessTokenSpec, *, actor: str
    ) -> NewAccessTokenView: ...

    async def list_access_tokens(self, session_id: str, app: str) -> list[AccessTokenView]: ...

    async def revoke_access_token(
        self, session_id: str, app: str, access_token_id: str, *, actor: str
    ) -> AccessTokenView: ...

    def on_keys(self, changed: Callable[[], None]) -> object:
        """Call ``changed`` when this or another manager creates or revokes a key."""
        ...

    async def list_join_tokens(self) -> list[JoinTokenView]: ...

    async def remove_join_token(self, token_id: str, *, actor: str) -> JoinTokenView: ...

    async def list_peers(self) -> list[PeerView]: ...

    async def revoke_peer(self, kind: str, name: str, *, actor: str) -> PeerView: ...

    async def find_key(self, sha256: str) -> ApiKey | None: ...

    async def ping(self) -> None: ...


class LogSource(Protocol):
    def read(
        self,
        session: SessionView,
        *,
        tail_lines: int,
        follow: bool,
        attempt: int | None,
        hostname: str,
    ) -> AsyncIterator[bytes]:
        """The log of a kernel of the session's newest attempt, or of ``attempt``: its last
        ``tail_lines`` lines (0: the whole stored log), then, with ``follow``, new output.

        Raises ``AgentUnreachable`` or ``NotFound`` before the first chunk. Cancelled when the client
        disconnects.
        """
        ...


class RegistrationSource(Protocol):
    """Registration of agents and proxies. Raises ``Forbidden``, ``Conflict`` or ``InvalidInput``."""

    async def create_token(self, spec: JoinTokenSpec, *, actor: str) -> NewJoinTokenView: ...

    async def join(self, request: JoinRequest) -> JoinReply: ...


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
    def check(self, session: SessionView) -> None:
        """Raises ``Conflict`` or ``AgentUnreachable`` if the session cannot run commands now."""
        ...

    def open(
        self, session: SessionView, spec: ExecSpec, *, actor: str
    ) -> AbstractAsyncContextManager[RunningCommand]:
        """Run the command; leaving the context terminates it. Raises the errors of ``check``."""
        ...


class WorkspaceSource(Protocol):
    async def ask(self, remove: str = "") -> WorkspaceList:
        """The workspaces of all connected agents, or those of session ``remove`` that were deleted; without
        the names of the sessions. Raises ``Conflict`` if the workspace is in use."""
        ...


@dataclass(frozen=True, slots=True)
class ApiServices:
    """``registration`` is None if the links have no TLS. ``checks`` serves ``/readyz``: "ok" or an error per
    component. ``metrics``: Prometheus text."""

    store: ApiStore
    logs: LogSource
    execs: CommandSource
    workspaces: WorkspaceSource
    checks: Callable[[], Awaitable[dict[str, str]]]
    metrics: Callable[[], bytes]
    max_body_bytes: int
    version: str
    clock: Clock
    registration: RegistrationSource | None = None
