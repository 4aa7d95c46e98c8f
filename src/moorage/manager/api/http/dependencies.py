"""Services that the API's handlers use from the rest of the manager.

Handlers call the store and the services directly. Only answers from agents are behind protocols,
because they have two implementations: the brokers of ``manager.rpc``, and scripted agents in
tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from moorage.common.aio.clock import Clock
from moorage.common.http.client_address import TrustedProxies
from moorage.common.http.cors import Cors
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
from moorage.manager.notifications.services import NotificationServices
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
        """Read the log of a kernel in the session's newest attempt, or in ``attempt``.

        Yields the last ``tail_lines`` lines (0 means the whole stored log), then, with ``follow``,
        new output. With ``timestamps``, each line starts with its time. ``since_ms`` is the Unix
        time of the first line, or 0 for any. With ``offset``, the log starts at this byte and stops
        where bytes are missing. Each piece carries the number of its first byte.

        Raises ``AgentUnreachable``, ``Conflict`` or ``NotFound`` before the first chunk. The read
        is cancelled when the client disconnects."""
        ...


class OpenCommand(Protocol):
    """A command running in a session. ``end`` is its outcome, or None while that is unknown."""

    end: ExecEnd | None

    async def send(self, data: bytes) -> None: ...
    async def end_input(self) -> None: ...
    async def resize(self, size: Size) -> None: ...

    async def read(self) -> tuple[Channel, bytes] | None:
        """The next chunk of output, or None after the end."""
        ...


class CommandSource(Protocol):
    async def check(self, session: SessionView) -> None:
        """Raise ``Conflict`` or ``AgentUnreachable`` if the session cannot currently run
        commands."""
        ...

    def open(
        self, session: SessionView, spec: ExecSpec, *, actor: str
    ) -> AbstractAsyncContextManager[OpenCommand]:
        """Run the command; leaving the context terminates it. Raises the errors of ``check``."""
        ...

    def ask(
        self, session: SessionView, hostname: str, code: str
    ) -> AbstractAsyncContextManager[OpenCommand]:
        """Send a request about code runs, encoded as JSON. The agent's answer is read like a
        command's output.

        Leaving the context does not stop any run. Raises ``NotFound``, ``AgentUnreachable``."""
        ...


class WorkspaceSource(Protocol):
    async def ask(self, remove: str = "") -> WorkspaceList:
        """Collect the workspaces of all connected agents. With ``remove``, a session's id, delete
        that session's workspaces and return them.

        The workspaces do not include their sessions' names. Raises ``Conflict`` if the workspace is
        in use.
        """
        ...


async def no_metrics() -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class ConsoleServices:
    """``lifetime_s``: the longest duration of a console session. ``idle_s``: how long it lasts
    without user activity. ``trusted``: web servers in front of the manager."""

    lifetime_s: float = 12 * 3600.0
    idle_s: int = 3600
    trusted: TrustedProxies = TrustedProxies()  # noqa: RUF009 - it never changes
    passwords: Passwords = field(default_factory=Passwords)
    attempts: AttemptLimit = field(default_factory=AttemptLimit)
    oidc: OidcClient | None = None


@dataclass(frozen=True, slots=True)
class ApiServices:
    """``registration`` is None if the links have no TLS. ``checks`` serves ``/readyz``: "ok" or an
    error per component; ``degraded``: other problems that need an operator. ``metrics``: Prometheus
    text for every caller; ``tenant_metrics``: for callers that see all projects. ``cors``: which
    pages of other origins may use the API. ``tracer``: None while tracing is off. ``validating``:
    the lock held while a large body is validated.
    ``currency``: that of all amounts of money, "" if none is set.
    ``on_plain_key`` receives the name of a key that arrived over loopback without TLS."""

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
    cors: Cors = Cors()  # noqa: RUF009 - it never changes
    registration: Registration | None = None
    models: ModelAddress = field(default_factory=ModelAddress)
    console: ConsoleServices = field(default_factory=ConsoleServices)
    tracer: TraceSink | None = None
    degraded: Callable[[], dict[str, str]] = dict
    tenant_metrics: Callable[[], Awaitable[bytes]] = no_metrics
    validating: asyncio.Lock = field(default_factory=asyncio.Lock)
    currency: str = ""
    notifications: NotificationServices = field(default_factory=NotificationServices)
    on_plain_key: Callable[[str], None] = lambda name: None
