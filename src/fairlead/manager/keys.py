"""An API key as the manager knows it, without its secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    name: str
    role: Literal["admin", "member"]
