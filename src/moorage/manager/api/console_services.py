"""Services of the API for signing in: limits, passwords, the OpenID provider, and trusted web
servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moorage.common.http.client_address import TrustedProxies
from moorage.manager.identity.attempts import AttemptLimit
from moorage.manager.identity.passwords import Passwords

if TYPE_CHECKING:
    from moorage.manager.oidc.provider import OidcClient


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
