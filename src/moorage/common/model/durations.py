"""Durations as text: ``90s``, ``10m``, ``1h30m``, ``7d``. Pure.

Every command-line option that takes a duration uses this grammar. JSON fields and settings hold
plain seconds, and their names end in ``_s`` (``timeout_s``).
"""

from __future__ import annotations

import re

_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
# Each unit occurs at most once, the largest first.
_PATTERN = re.compile("(?=.)" + "".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in _UNITS))
_MAX_S = 315_360_000  # ten years: anything longer is a typing error


def parse_duration(text: str) -> float:
    """Return the duration in seconds. Raises ``ValueError`` with the text and the grammar."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write it like 90s, 10m, 1h30m or 7d")

    seconds = sum(
        float(amount or 0) * unit
        for amount, unit in zip(match.groups(), _UNITS.values(), strict=True)
    )
    if seconds > _MAX_S:
        raise ValueError(f"{text!r} is longer than ten years")

    return seconds


def format_duration(seconds: float) -> str:
    """Format a duration with its two largest units: ``0.31s``, ``42s``, ``3m12s``, ``5h02m``,
    ``3d4h``.

    ``parse_duration`` reads all of them.
    """
    if seconds < 10:
        return f"{max(seconds, 0):.2f}s"

    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if not minutes and not hours:
        return f"{rest}s"
    if not hours:
        return f"{minutes}m{rest:02}s"

    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24}h"
