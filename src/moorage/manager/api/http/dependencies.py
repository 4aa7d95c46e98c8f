"""Services of the API: what handlers use of the rest of the manager.

Handlers call the store and the services themselves. Protocols stand only for what agents answer,
which has two implementations: the brokers of ``manager.rpc``, and agents in tests whose answers are
scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from moorage.common.aio.clock import Clock
from moorage.common.http.client_address import TrustedProxies
from moorage.common.http.server import DEFAULT_LIMITS, ConnectionLimits
from moorage.common.link.log_request import LogPiece
from moorage.common.model.commands import Channel, ExecEnd, ExecSpec, Size
from moorage.common.telemetry import TraceSink
from moorage.common.views.resources import SessionView
from moorage.common.views.workspaces import WorkspaceList
from moorage.manager.console import ModelAddress
from moorage.manager.endpoint_service import EndpointService
from moorage.manager.events import EventFeed
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.attempts import AttemptLimit
from moorage.manager.identity.passwords import Passwords
from moorage.manager.identity.scope import Scope
from moorage.manager.pki.registration import Registration
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator

if TYPE_CHECKING:
    from moorage.manager.oidc.provider import OidcClient


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


class OpenCommand(Protocol):
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
    ) -> AbstractAsyncContextManager[OpenCommand]:
        """Run the command; leaving the context terminates it. Raises the errors of ``check``."""
        ...

    def ask(
        self, session: SessionView, hostname: str, code: str
    ) -> AbstractAsyncContextManager[OpenCommand]:
        """A request about runs of code, as JSON; the answer is the output. Leaving the context ends
        no run. Raises ``NotFound``, ``AgentUnreachable``."""
        ...


class WorkspaceSource(Protocol):
    async def ask(self, remove: str = "") -> WorkspaceList:
        """The workspaces of all connected agents, or those of session ``remove`` that were deleted;
        without the names of the sessions. Raises ``Conflict`` if the workspace is in use."""
        ...


async def no_metrics() -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class ConsoleServices:
    """``lifetime_s`` and ``idle_s``: how long a console session lasts, and how long without an act
    of its user. ``trusted``: web servers in front of the manager."""

    lifetime_s: float = 12 * 3600.0
    idle_s: int = 3600
    trusted: TrustedProxies = TrustedProxies()  # noqa: RUF009 - it never changes
    passwords: Passwords = field(default_factory=Passwords)
    attempts: AttemptLimit = field(default_factory=AttemptLimit)
    oidc: OidcClient | None = None


@dataclass(frozen=True, slots=True)
class ApiServices:
    """``registration`` is None if the links have no TLS. ``checks`` serves ``/readyz``: "ok" or an
    error per component; ``degraded``: what else needs a person. ``metrics``: Prometheus text for
    everybody; ``tenant_metrics``: for those who see all projects. ``tracer``: None while traces are
    off. ``validating`` is held while a large body is validated. ``on_plain_key`` is told the name
    of a key that has come over loopback without TLS."""

    store: Store
    endpoints: EndpointService
    terminator: SessionTerminator
    explanations: ExplanationService
    logs: LogSource
    execs: CommandSource
    workspaces: WorkspaceSource
    events: EventFeed
    checks: Callable[[], Awaitable[dict[str, str]]]
    metrics: Callable[[], Awaitable[bytes]]
    max_body_bytes: int
    version: str
    clock: Clock
    limits: ConnectionLimits = DEFAULT_LIMITS
    registration: Registration | None = None
    models: ModelAddress = field(default_factory=ModelAddress)
    console: ConsoleServices = field(default_factory=ConsoleServices)
    tracer: TraceSink | None = None
    degraded: Callable[[], dict[str, str]] = dict
    tenant_metrics: Callable[[], Awaitable[bytes]] = no_metrics
    validating: asyncio.Lock = field(default_factory=asyncio.Lock)
    on_plain_key: Callable[[str], None] = lambda name: None
