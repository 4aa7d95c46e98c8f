"""Durations as people write and read them: ``90s``, ``10m``, ``1h30m``, ``7d``. Pure.

Every option of the command line that takes a span of time uses this grammar. JSON fields and settings hold
plain seconds and say so in their names (``timeout_s``).
"""

from __future__ import annotations

import re

_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
# Each unit at most once, the largest first.
_PATTERN = re.compile("(?=.)" + "".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in _UNITS))
_MAX_S = 315_360_000  # ten years: more is a typing error


def parse_duration(text: str) -> float:
    """Seconds. Raises ``ValueError`` that names the text and the grammar."""
    found = _PATTERN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration: write it like 90s, 10m, 1h30m or 7d")
    seconds = sum(
        float(amount or 0) * unit for amount, unit in zip(found.groups(), _UNITS.values(), strict=True)
    )
    if seconds > _MAX_S:
        raise ValueError(f"{text!r} is longer than ten years")
    return seconds


def format_duration(seconds: float) -> str:
    """Three digits at most of what matters: ``0.31s``, ``42s``, ``3m12s``, ``5h02m``, ``3d4h``.

    ``parse_duration`` reads all of them.
    """
    if seconds < 10:
        return f"{max(seconds, 0):.2f}s"
    minutes, whole = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if not minutes and not hours:
        return f"{whole}s"
    if not hours:
        return f"{minutes}m{whole:02}s"
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24}h"
