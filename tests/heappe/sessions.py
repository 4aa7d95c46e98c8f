"""Authentication of the test server: session codes, API keys and bearer tokens, and the roles of
users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from aiohttp import web

from moorage.common.aio.clock import Clock
from tests.heappe.site import ADMINISTRATOR, MANAGER, SUBMITTER, Project, Site, Timing, User
from tests.heappe.switches import Switches
from tests.heappe.wire import Problem

HEADER_AUTH_NEEDED = "HEADER-AUTH-NEEDED"


class PlainUnauthorized(Exception):
    """A bad bearer token: 401 as plain text."""


@dataclass
class _Session:
    code: str
    user: User
    last_use: datetime


class Sessions:
    """One live session per user, shared by everyone who logs in as that user; each use extends
    it."""

    def __init__(self, site: Site, switches: Switches, timing: Timing, clock: Clock) -> None:
        self._site = site
        self._switches = switches
        self._timing = timing
        self._clock = clock
        self._sessions: dict[str, _Session] = {}

    def login(self, name: str, password: str) -> str:
        user = self._site.user(name)
        if user is None or user.password != password:
            raise Problem("wrong-password", "Wrong username or password.")
        return self.code_for(user)

    def code_for(self, user: User) -> str:
        now = self._clock.now()
        for session in self._sessions.values():
            if session.user == user and not self._expired(session, now):
                session.last_use = now
                return session.code
        code = self._clock.new_id()
        self._sessions[code] = _Session(code, user, now)
        return code

    def expire(self, name: str) -> None:
        """Expire the user's session, as the passage of time or an administrator would."""
        for session in self._sessions.values():
            if session.user.name == name:
                session.last_use -= timedelta(seconds=self._timing.session_s + 1)

    def _expired(self, session: _Session, now: datetime) -> bool:
        return now - session.last_use > timedelta(seconds=self._timing.session_s)

    def user(self, code: str | None, headers: Mapping[str, str]) -> User:
        """The caller. Raises ``Problem`` or ``PlainUnauthorized``."""
        if code:
            return self._by_code(code)

        name, _, password = headers.get("X-API-Key", "").partition(":")
        user = self._site.user(name)
        if user is not None and user.password == password:
            return user

        kind, _, token = headers.get("Authorization", "").partition(" ")
        if self._site.bearer and kind == "Bearer":
            user = self._site.user(token.removeprefix("jwt-")) if token.startswith("jwt-") else None
            if user is None:
                raise PlainUnauthorized("Unauthorized")

            return user

        raise Problem("unauthorized", "Unauthorized")

    def _by_code(self, code: str) -> User:
        session = self._sessions.get(code)
        if session is None:
            raise Problem("unauthorized", "Unauthorized")
        if self._switches.take("sessions_expire"):
            self.expire(session.user.name)

        now = self._clock.now()
        if self._expired(session, now):
            detail = (
                f"Session code '{code}' already expired at '{session.last_use:%m/%d/%Y %H:%M:%S}'."
            )
            raise Problem("expired", detail, code="Expired")

        session.last_use = now
        return session.user

    def require(self, user: User, project: Project | None, role: str = SUBMITTER) -> None:
        if project is None or project.ends_in_days <= 0:
            raise Problem("missing", "Project not found or it has ended.", code="ProjectNotFound")
        if role not in user.roles:
            raise Problem(
                "unauthorized", f"User does not have role {role}.", code=f"MissingRole:{role}"
            )

    def sees_everybody(self, user: User) -> bool:
        return bool({MANAGER, ADMINISTRATOR} & set(user.roles))


def plain_unauthorized(why: str) -> web.Response:
    return web.Response(status=401, text=why, content_type="text/plain")
