"""API keys without their secrets, owners and idempotency keys."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.roles import Role

DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Owner:
    """The user and project to which quotas and fair shares charge a session. ``isolated``: the user is no
    administrator, so its processes must not run as the user of an agent."""

    user: str
    project: str = DEFAULT_PROJECT
    isolated: bool = False


NOBODY = Owner("")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as it is valid now.

    ``role``: at most that of its user at this moment. ``owner``: of everything that is created with the key.
    ``scopes``, ``models`` and ``resource_groups``: None: no restriction. ``resource_groups`` and
    ``max_priority`` are the stricter ones of the key and its project; ``restricted``: the key itself has a
    restriction, so it manages no keys.
    """

    id: str
    name: str
    role: Role
    owner: Owner = NOBODY
    scopes: frozenset[str] | None = None
    models: frozenset[str] | None = None
    resource_groups: frozenset[str] | None = None
    max_priority: int | None = None
    restricted: bool = False


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Identifies a request, so that repeating it creates nothing twice. ``scope``: the id of the API key that
    sent it; ``key``: the value of its Idempotency-Key header."""

    scope: str
    key: str
