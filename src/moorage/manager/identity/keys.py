"""API keys without their secrets, owners and idempotency keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from moorage.common.model.roles import Role

DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Owner:
    """The user and project to which quotas and fair shares charge a session. ``isolated``: the user
    is no administrator, so its processes must not run as the user of an agent."""

    user: str
    project: str = DEFAULT_PROJECT
    isolated: bool = False


NOBODY = Owner("")


def digest_of(secret: str) -> str:
    """The SHA-256 by which the store knows the secret of a key or a console session, in hex."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """``key``: the name of the key that opened it; empty: a password did, or single sign-on
    (``by_oidc``)."""

    key: str
    expires_at: datetime
    idle_s: int
    by_oidc: bool = False


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, or a console session, as it is valid now.

    ``role``: at most that of its user at this moment. ``owner``: of everything that is created with
    the key. ``scopes``, ``models`` and ``resource_groups``: None: no restriction.
    ``resource_groups`` and ``max_priority`` are the stricter ones of the key and its project;
    ``kept_priority``: what it may ask for whatever the ceiling of its role is, since it is older
    than ceilings. ``restricted``: the key itself has a restriction, so it manages no keys.
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
    restricted: bool = False
    console: ConsoleSession | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Identifies a request, so that repeating it creates nothing twice. ``scope``: the id of the
    API key that sent it; ``key``: the value of its Idempotency-Key header."""

    scope: str
    key: str
