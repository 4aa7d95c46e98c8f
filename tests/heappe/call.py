"""One call of the API while it is handled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.heappe.sessions import Sessions
from tests.heappe.site import User
from tests.heappe.wire import Member, number


@dataclass
class Call:
    """``query`` and ``body`` have lower-case member names; a name in ``query`` may repeat."""

    request: web.Request
    sessions: Sessions
    path: str
    query: dict[str, list[str]]
    body: dict[str, Any] = field(default_factory=dict)

    def user(self) -> User:
        code = self.body.get("sessioncode") or self.first("sessioncode")
        return self.sessions.user(code or None, self.request.headers)

    def first(self, name: str) -> str:
        return next(iter(self.query.get(name, ())), "")

    def number(self, name: str) -> int:
        return number(self.first(name.lower()), name)

    def abort(self) -> None:
        """Break the connection to the client."""
        if self.request.transport is not None:
            self.request.transport.abort()


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Endpoint:
    """``limit``: the largest body, in bytes. ``members``: the body's model; None leaves it
    unread."""

    method: str
    path: str
    handler: Handler
    limit: int = 30_000_000
    members: tuple[Member, ...] | None = ()
