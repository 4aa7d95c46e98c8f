"""A finding of a fault run: an invariant and its violations."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Invariant:
    """``checked``: the number of objects checked."""

    name: str
    checked: int
    violations: list[str] = field(default_factory=list)
