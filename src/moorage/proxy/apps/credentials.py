"""Credentials of a request for an app: finds those that may be Moorage's, and separates them from
those of the app. Pure.

Clients of apps send credentials in the ways that their programs know: notebooks and their clients
as ``Authorization: token`` and ``?token=``, ``curl -u`` and git as Basic, browsers as a cookie.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from moorage.proxy.apps.address import AppAddress
from moorage.proxy.core.secret_form import has_secret

COOKIE = "moorage-access-token"
QUERY_PARAMETER = "access_token"
# Jupyter's clients open WebSockets with ?token=.
_PARAMETERS = frozenset({QUERY_PARAMETER, "token"})
# Schemes of Authorization that are followed by the credential itself.
_PLAIN_SCHEMES = frozenset({"bearer", "token"})

CredentialSource = Literal["query", "header", "basic", "cookie"]
TAKES_KEYS: frozenset[CredentialSource] = frozenset({"header", "basic"})
"""Where API keys are accepted: they must not appear in an address or a cookie."""
SENT_BY_ITSELF: frozenset[CredentialSource] = frozenset({"basic", "cookie"})
"""What a browser also sends for a page of another site."""


@dataclass(frozen=True, slots=True)
class PossibleCredential:
    """A value that may be an access token or a key of Moorage, or a credential of the app."""

    source: CredentialSource
    secret: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a request for ``address``, in the order in which they count: the address
    first, because a browser that opens a new one must not stay with its old cookie; what the
    browser sends by itself last."""

    address: AppAddress
    candidates: tuple[PossibleCredential, ...] = ()

    @property
    def may_be_new(self) -> bool:
        """Whether a newer route table may know one of them. A cookie is never new, because the
        proxy itself sets it after accepting the token."""
        return any(candidate.source != "cookie" for candidate in self.candidates)


def read_credentials(
    address: AppAddress, headers: Mapping[str, str], cookie_headers: Iterable[str]
) -> Credentials:
    """Read the credentials. ``headers`` must be case-insensitive. ``cookie_headers``: the values of
    all Cookie headers."""
    in_query = [
        PossibleCredential("query", secret)
        for field in address.query.split("&")
        if (secret := _token_in(field))
    ]
    cookies = (
        cookie.strip().partition("=") for line in cookie_headers for cookie in line.split(";")
    )
    in_cookies = [
        PossibleCredential("cookie", value) for name, _, value in cookies if name == COOKIE
    ]
    in_header = _in_authorization(headers.get("Authorization", ""))

    return Credentials(address, (*in_query, *in_header, *in_cookies))


def query_for_app(query: str, is_of_moorage: Callable[[str], bool]) -> str:
    """The query without Moorage's credentials. The rest is unchanged."""
    if not query:
        return ""
    return "&".join(field for field in query.split("&") if not _is_withheld(field, is_of_moorage))


def _is_withheld(field: str, is_of_moorage: Callable[[str], bool]) -> bool:
    secret = _token_in(field)
    return has_secret(unquote(field)) or (bool(secret) and is_of_moorage(secret))


def _token_in(field: str) -> str:
    """The credential in a field of a query, or ""."""
    name, _, value = field.partition("=")
    return unquote(value) if unquote(name) in _PARAMETERS else ""


def _in_authorization(value: str) -> list[PossibleCredential]:
    """The credentials in the value of Authorization. In Basic, the password counts before the name,
    because some clients send a token as the name alone."""
    scheme, _, rest = value.strip().replace("\t", " ").partition(" ")
    rest = rest.strip()
    if scheme.lower() in _PLAIN_SCHEMES:
        return [PossibleCredential("header", rest)] if rest else []
    if scheme.lower() != "basic":
        return []

    try:
        # Lenient, because an app that is lenient must not find a credential that was not found
        # here.
        plain = base64.b64decode(rest.rstrip("=") + "==", altchars=b"-_")
    except (binascii.Error, ValueError):
        return []

    name, _, password = plain.decode("utf-8", "surrogateescape").partition(":")
    return [PossibleCredential("basic", secret) for secret in (password, name) if secret]
