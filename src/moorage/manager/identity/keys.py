"""API keys without their secrets, owners and idempotency keys."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.views.keys import Role

DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Owner:
    """The user and project to which quotas and fair shares charge a session."""

    user: str
    project: str = DEFAULT_PROJECT


NOBODY = Owner("")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``owner``: the owner of everything that is created with this key."""

    id: str
    name: str
    role: Role
    owner: Owner = NOBODY


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Identifies a request, so that repeating it creates nothing twice. ``scope``: the id of the API key that
    sent it; ``key``: the value of its Idempotency-Key header."""

    scope: str
    key: str
