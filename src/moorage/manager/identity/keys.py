"""Who asks: an API key as the manager knows it, without its secret, and whose it is."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.views.keys import Role

DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose something is: what quotas and fair shares are counted by."""

    user: str
    project: str = DEFAULT_PROJECT


NOBODY = Owner("")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``owner``: whose everything is that is made with it."""

    id: str
    name: str
    role: Role
    owner: Owner = NOBODY


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Make it once, however often it is asked for: ``key`` is one of those of ``scope`` (an API key's id)."""

    scope: str
    key: str
