"""API keys without their secrets, owners and idempotency keys."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from moorage.common.model.roles import Role

DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Owner:
    """User and project against whose quotas and fair shares a session is counted. ``isolated``: the
    user is not an administrator, so its processes must not run as the user of an agent."""

    user: str
    project: str = DEFAULT_PROJECT
    isolated: bool = False


NOBODY = Owner("")


def digest_of(secret: str) -> str:
    """SHA-256, in hex, by which the store identifies the secret of a key or console session."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """``key``: the name of the key that opened it; empty if a password or single sign-on
    (``by_oidc``) did."""

    key: str
    expires_at: datetime
    idle_s: int
    by_oidc: bool = False


@dataclass(frozen=True, slots=True)
class ApiKey:
    """API key or console session, with its current rights.

    ``role``: at most the current role of its user. ``owner``: owner of everything created with the
    key. ``scopes``, ``models`` and ``resource_groups`` are None without a restriction.
    ``resource_groups`` and ``max_priority`` are the stricter of those of the key and its project;
    ``kept_priority``: priority that it may request above its role's ceiling, because it predates
    ceilings. ``max_time_s`` and ``max_per_session`` limit the sessions that it creates.
    ``restricted``: the key itself has a restriction, so it cannot manage keys.
    ``console``: set for a console session, whose ``name`` is its user's.
    """

    id: str
    name: str
    role: Role
    owner: Owner = NOBODY
    scopes: frozenset[str] | None = None
    models: frozenset[str] | None = None
    resource_groups: frozenset[str] | None = None
    max_priority: int | None = None
    kept_priority: int = 0
    max_time_s: float | None = None
    max_per_session: Mapping[str, str | int | float] = field(default_factory=dict)
    restricted: bool = False
    console: ConsoleSession | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Identifies a request, so that repeating it does not create anything twice. ``scope``: the id
    of the API key that sent it; ``key``: the value of its Idempotency-Key header."""

    scope: str
    key: str
