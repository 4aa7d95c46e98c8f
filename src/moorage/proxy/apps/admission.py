"""Who is let in to which app. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from moorage.common.link.messages import AppRoute
from moorage.proxy.apps import error_response
from moorage.proxy.apps.address import Asked, Shown
from moorage.proxy.core.error_response import Refuse
from moorage.proxy.core.routes import Table

Way = Literal["query", "header", "cookie"]
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Entry:
    """Let in: ``access_token`` by its ``way``, known by ``sha256``. ``expires_at`` in unix seconds, 0:
    never."""

    route: AppRoute
    access_token: str
    sha256: str
    way: Way
    expires_at: int


def admit(
    shown: Shown,
    table: Table,
    unix_now: float,
    *,
    method: str = "GET",
    upgrade: bool = False,
    host: str = "",
    origin: str | None = None,
) -> Entry | Refuse:
    """Judge a request by its head: is there such an app, ready, and may who asks reach it?"""
    asked = shown.asked
    if not asked.session_id or not asked.app:
        return error_response.no_such_address(asked)
    route = table.apps.get((asked.session_id, asked.app))
    expired_at = 0
    for way, access_token in _candidates(shown):
        # Looked up by digest: the time it takes says nothing about one that is nearly right.
        sha256 = hashlib.sha256(access_token.encode("utf-8", "surrogateescape")).hexdigest()
        opens, until = _opens(sha256, asked, route, table, unix_now, with_keys=way == "header")
        if not opens:
            expired_at = max(expired_at, until)
            continue
        if way == "cookie" and _is_foreign(method, upgrade, host, origin):
            return error_response.foreign_origin(origin or "")
        if route is None:
            return error_response.not_ready(asked)
        if route.protocol == "tcp" and not asked.tunnel:
            return error_response.not_http(asked)
        return Entry(route, access_token, sha256, way, until)
    if expired_at:
        return error_response.access_token_expired(asked, unix_now - expired_at)
    return error_response.no_access_token(asked, given=any(True for _ in _candidates(shown)))


def still_open(entry: Entry, table: Table) -> bool:
    """Whether what was let in may go on: an access token that expired meanwhile does no harm to it, one
    that was
    revoked, or whose session has ended, does."""
    return entry.sha256 in table.access_tokens or table.key(entry.sha256, 0) is not None


def _candidates(shown: Shown) -> list[tuple[Way, str]]:
    found: list[tuple[Way, str]] = [("query", access_token) for access_token in shown.by_query]
    if shown.by_header:
        found.append(("header", shown.by_header))
    return found + [("cookie", access_token) for access_token in shown.by_cookie]


def _opens(
    sha256: str, asked: Asked, route: AppRoute | None, table: Table, unix_now: float, *, with_keys: bool
) -> tuple[bool, int]:
    """Whether it opens this app, and until when it does or did. An API key has no business in an address or a
    cookie."""
    access_token = table.access_tokens.get(sha256)
    if access_token is not None and (access_token.session_id, access_token.app) == (
        asked.session_id,
        asked.app,
    ):
        return unix_now < access_token.expires_at, access_token.expires_at
    key = table.key(sha256, unix_now) if with_keys else None
    if key is None:
        return False, 0
    its = route is not None and (route.user, route.project) == (key.user, key.project)
    return key.admin or its, key.expires_at if key.admin or its else 0


def _is_foreign(method: str, upgrade: bool, host: str, origin: str | None) -> bool:
    """A page of another origin makes a browser send its cookies along: by a cookie it may look, not act."""
    if origin is None or (method in _SAFE and not upgrade):
        return False
    return re.sub(r"^[a-z]+://", "", origin.lower()) != host.lower()
