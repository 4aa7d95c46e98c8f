"""Which images may go when a node's disk gets full, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

# A kernel that is about to be created holds its image by nothing else than having just asked for it.
YOUNG_S = 600.0


@dataclass(frozen=True, slots=True)
class ImageGcRules:
    """``high``, ``low``: percent of the disk in use at which images begin to go, and at which it is enough.
    ``whose``: those that Moorage pulled, or any. ``min_free``: bytes below which nothing new starts."""

    mode: Literal["on", "dry-run", "off"] = "on"
    high: int = 85
    low: int = 75
    whose: Literal["pulled", "any"] = "pulled"
    min_free: int = 0


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes. ``free``: what may still be written."""

    total: int
    free: int

    @property
    def percent(self) -> float:
        return 100 * (1 - self.free / self.total) if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Image:
    """``used_at``: unix seconds, 0 where nobody knows. ``ours``: Moorage pulled it."""

    id: str
    names: tuple[str, ...] = ()
    size: int = 0
    used_at: float = 0.0
    ours: bool = False


def begins(disk: Disk, rules: ImageGcRules) -> bool:
    return rules.mode != "off" and disk.percent >= rules.high


def enough(disk: Disk, rules: ImageGcRules) -> bool:
    return disk.percent < rules.low


def may_go(
    images: Sequence[Image], in_use: Collection[str], rules: ImageGcRules, now: float
) -> tuple[Image, ...]:
    """The least recently used first; those of the same age by size, the largest first. ``in_use``: ids of the
    images of all containers, whoever's and in whatever state. ``now``: unix seconds."""
    found = [
        image
        for image in images
        if image.id not in in_use and (image.ours or rules.whose == "any") and now - image.used_at >= YOUNG_S
    ]
    return tuple(sorted(found, key=lambda image: (image.used_at, -image.size, image.id)))
