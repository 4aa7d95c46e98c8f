"""Admission of requests for apps, by access token or API key. Pure.

The rule for all entry points (``common/model/session_access.py``) decides whether a key may open a
session, based on the facts about the session in the routes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from moorage.common.link.messages import AppRoute, KeyGrant
from moorage.common.model.roles import Role
from moorage.common.model.session_access import (
    Action,
    Caller,
    SessionKind,
    Subject,
    Verdict,
    decide,
)
from moorage.proxy.apps import error_response
from moorage.proxy.apps.address import AppAddress
from moorage.proxy.apps.credentials import (
    SENT_BY_ITSELF,
    TAKES_KEYS,
    Credentials,
    CredentialSource,
    query_for_app,
)
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.core.secret_form import has_secret

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class AppGrant:
    """An admitted request. ``secret`` is its credential, with the digest ``sha256``.

    ``expires_at`` is in seconds since the epoch, 0 for never. ``query`` is for the app, without
    credentials of Moorage. ``withheld``: the headers, in lower case, that contain one.
    """

    route: AppRoute
    secret: str
    sha256: str
    source: CredentialSource
    expires_at: int
    query: str = ""
    withheld: frozenset[str] = frozenset()


def admit(
    credentials: Credentials,
    table: IndexedTable,
    unix_now: float,
    *,
    method: str = "GET",
    upgrade: bool = False,
    host: str = "",
    origin: str | None = None,
) -> AppGrant | ErrorResponse:
    """Check a request by its head: does the app exist, is it ready, and does a credential grant
    access to it?

    The first credential that grants access is used. What is no Moorage credential belongs to the
    app and has no effect here.
    """
    address = credentials.address
    if not address.session_id or not address.app:
        return error_response.unknown_app(address)

    route = table.apps.get((address.session_id, address.app))
    expired_at = 0
    refused = Verdict.ALLOWED
    has_misplaced_key = False
    for candidate in credentials.candidates:
        source = candidate.source
        sha256 = _digest(candidate.secret)
        found = _check(
            sha256,
            address,
            route=route,
            table=table,
            unix_now=unix_now,
            allow_keys=source in TAKES_KEYS,
        )
        has_misplaced_key = has_misplaced_key or found.is_misplaced_key
        if found.verdict is not Verdict.ALLOWED:
            refused = found.verdict
        if not found.granted:
            expired_at = max(expired_at, found.expires_at)
            continue
        if source in SENT_BY_ITSELF and _is_cross_origin(method, upgrade, host, origin):
            return error_response.cross_origin(origin or "")
        if route is None:
            return error_response.not_ready(address)
        if route.protocol == "tcp" and not address.tunnel:
            return error_response.not_http(address)

        has_header = any(
            given.source in ("header", "basic") and _is_of_moorage(given.secret, table)
            for given in credentials.candidates
        )
        return AppGrant(
            route,
            candidate.secret,
            sha256=sha256,
            source=source,
            expires_at=found.expires_at,
            query=query_for_app(address.query, lambda secret: _is_of_moorage(secret, table)),
            withheld=frozenset({"authorization"} if has_header else ()),
        )

    if expired_at:
        return error_response.access_token_expired(address, unix_now - expired_at)
    if refused is not Verdict.ALLOWED:
        return error_response.refused(address, refused)
    if has_misplaced_key:
        return error_response.misplaced_key(address)

    return error_response.unauthorized(address, given=bool(credentials.candidates))


def is_still_granted(grant: AppGrant, table: IndexedTable) -> bool:
    """Return whether an open connection may continue under ``table``.

    The connection is closed when its credential or the agent is revoked, when its key's rights
    change, and, if the credential is an access token, when the session ends. Expiry of the
    credential does not close it.
    """
    if grant.route.peer_id in table.revoked_agents:
        return False
    if grant.sha256 in table.access_tokens:
        return True

    key = table.find_key(grant.sha256, 0)
    return key is not None and may_open(key, grant.route) is Verdict.ALLOWED


def _digest(secret: str) -> str:
    """The digest by which a secret is looked up, because the timing of that reveals nothing about
    an almost correct secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _is_of_moorage(secret: str, table: IndexedTable) -> bool:
    """Whether a secret is Moorage's, for whatever session and even if it has expired."""
    if has_secret(secret):
        return True
    sha256 = _digest(secret)
    return sha256 in table.access_tokens or table.find_key(sha256, 0) is not None


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of checking a credential. ``expires_at``: 0 if unknown or never. ``verdict``: the
    decision about a valid key. ``is_misplaced_key``: it is a key where keys are not accepted."""

    granted: bool
    expires_at: int = 0
    verdict: Verdict = Verdict.ALLOWED
    is_misplaced_key: bool = False


def _check(
    sha256: str,
    address: AppAddress,
    route: AppRoute | None,
    table: IndexedTable,
    *,
    unix_now: float,
    allow_keys: bool,
) -> _Found:
    """Check a credential."""
    token = table.access_tokens.get(sha256)
    if token is not None and (token.session_id, token.app) == (address.session_id, address.app):
        return _Found(unix_now < token.expires_at, token.expires_at)

    key = table.find_key(sha256, unix_now)
    if key is None or not allow_keys:
        return _Found(granted=False, is_misplaced_key=key is not None)

    verdict = may_open(key, route)
    if verdict is not Verdict.ALLOWED:
        return _Found(granted=False, verdict=verdict)

    return _Found(granted=True, expires_at=key.expires_at)


def may_open(key: KeyGrant, route: AppRoute | None) -> Verdict:
    """Whether a key may open a port. ``route``: None means that the proxy does not know the
    port, which only callers who can see all sessions learn."""
    caller = _caller_of(key)
    if route is None:
        verdict = decide(caller, None, Action.PORTS)
        sees_all = caller.projects is None and verdict is Verdict.UNKNOWN
        return Verdict.ALLOWED if sees_all else verdict
    kind = SessionKind.AS_AGENT if route.unisolated else SessionKind.ISOLATED
    return decide(caller, Subject(route.user, route.project, kind), Action.PORTS)


def _caller_of(key: KeyGrant) -> Caller:
    """A key's caller. The routes omit the user name for a key that may not open any port."""
    if key.admin:
        return Caller(Role.ADMIN, key.user, None)
    own = Role.MEMBER if key.user else Role.VIEWER
    role = Role.PROJECT_ADMIN if key.project_admin else own
    return Caller(role, key.user, (key.project,))


def _is_cross_origin(method: str, upgrade: bool, host: str, origin: str | None) -> bool:
    """Return whether a page from another origin uses what the browser sends by itself. Safe methods
    are allowed."""
    if origin is None or (method in _SAFE_METHODS and not upgrade):
        return False
    return re.sub(r"^[a-z]+://", "", origin.lower()) != host.lower()
