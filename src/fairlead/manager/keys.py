"""An API key as the manager knows it, without its secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    name: str
    role: Literal["admin", "member"]


@dataclass(frozen=True, slots=True)
class Once:
    """Make it once, however often it is asked for: ``key`` is one of those of ``scope`` (an API key's id)."""

    scope: str
    key: str
