"""Admission of requests for apps, by access token or API key. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from moorage.common.link.messages import AppRoute, KeyGrant
from moorage.proxy.apps import error_response
from moorage.proxy.apps.address import AppAddress, Credentials
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.routes import IndexedTable

CredentialSource = Literal["query", "header", "cookie"]
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class AppGrant:
    """An admitted request. ``secret`` is the credential it carried, with its digest ``sha256``.

    ``expires_at`` is in seconds since the epoch, 0 for never.
    """

    route: AppRoute
    secret: str
    sha256: str
    source: CredentialSource
    expires_at: int


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
    """Check a request by its head: does the app exist, is it ready, and does a credential grant access to it?

    The first credential that grants access counts, in the order query, header, cookie.
    """
    address = credentials.address
    if not address.session_id or not address.app:
        return error_response.unknown_app(address)
    route = table.apps.get((address.session_id, address.app))
    expired_at = 0
    for source, secret in _candidates(credentials):
        # Lookup by digest: its timing reveals nothing about a secret that is almost right.
        sha256 = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
        granted, expires_at = _check(sha256, address, route, table, unix_now, allow_keys=source == "header")
        if not granted:
            expired_at = max(expired_at, expires_at)
            continue
        if source == "cookie" and _is_cross_origin(method, upgrade, host, origin):
            return error_response.cross_origin(origin or "")
        if route is None:
            return error_response.not_ready(address)
        if route.protocol == "tcp" and not address.tunnel:
            return error_response.not_http(address)
        return AppGrant(route, secret, sha256, source, expires_at)
    if expired_at:
        return error_response.access_token_expired(address, unix_now - expired_at)
    return error_response.unauthorized(address, given=bool(_candidates(credentials)))


def is_still_granted(grant: AppGrant, table: IndexedTable) -> bool:
    """Return whether an open connection may continue under ``table``.

    Revoking its credential closes it; so does the end of the session if the credential is an access token.
    Later expiry does not.
    """
    return grant.sha256 in table.access_tokens or table.find_key(grant.sha256, 0) is not None


def _candidates(credentials: Credentials) -> list[tuple[CredentialSource, str]]:
    candidates: list[tuple[CredentialSource, str]] = [("query", value) for value in credentials.from_query]
    if credentials.from_header:
        candidates.append(("header", credentials.from_header))
    return candidates + [("cookie", value) for value in credentials.from_cookies]


def _check(
    sha256: str,
    address: AppAddress,
    route: AppRoute | None,
    table: IndexedTable,
    unix_now: float,
    *,
    allow_keys: bool,
) -> tuple[bool, int]:
    """Return whether a credential grants access to this app, and its expiry time (0: unknown, or never).

    API keys are accepted in a header only: they must not appear in an address or a cookie.
    """
    token = table.access_tokens.get(sha256)
    if token is not None and (token.session_id, token.app) == (address.session_id, address.app):
        return unix_now < token.expires_at, token.expires_at
    key = table.find_key(sha256, unix_now) if allow_keys else None
    if key is None:
        return False, 0
    return (True, key.expires_at) if _may_open(key, route) else (False, 0)


def _may_open(key: KeyGrant, route: AppRoute | None) -> bool:
    """The rule of the manager (``manager/identity/inside.py``) for what is inside of a session."""
    if key.admin:
        return True
    if route is None or route.unisolated or route.project != key.project:
        return False
    return key.project_admin or route.user == key.user


def _is_cross_origin(method: str, upgrade: bool, host: str, origin: str | None) -> bool:
    """Return whether a page of another origin uses the browser's cookie. Safe methods are allowed."""
    if origin is None or (method in _SAFE_METHODS and not upgrade):
        return False
    return re.sub(r"^[a-z]+://", "", origin.lower()) != host.lower()
