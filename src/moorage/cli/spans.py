"""Spans of time that have passed, as people type them. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from moorage.common.model.errors import InvalidInput

_AGO = re.compile(r"^(\d+(?:\.\d+)?)(s|m|h|d)$")
_TEN_YEARS_S = 315_360_000
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def length_s(text: str, option: str) -> float:
    """``90s``, ``10m``, ``2h`` or ``1d`` in seconds. Raises ``InvalidInput`` naming option and text."""
    found = _AGO.match(text.strip())
    if found is None or not 0 < float(found[1]) * _SECONDS[found[2]] <= _TEN_YEARS_S:
        raise InvalidInput(
            f"{option} {text!r} is no length of time", next_step="write it like 90s, 10m, 2h or 1d"
        )
    return float(found[1]) * _SECONDS[found[2]]


def past(text: str, now: datetime, option: str) -> datetime:
    """A date and time (that of this machine, unless it says its offset), a time of today, or how long ago.

    Raises ``InvalidInput`` naming the option and the text.
    """
    if _AGO.match(text.strip()):
        return now - timedelta(seconds=length_s(text, option))
    here = now.astimezone()
    today = [f"{here:%Y-%m-%d}T{text.strip()}"] if ":" in text else []
    for whole in (text.strip(), *today):
        try:
            found = datetime.fromisoformat(whole)
        except ValueError:
            continue
        return found if found.tzinfo is not None else found.astimezone()
    raise InvalidInput(
        f"{option} {text!r} is no point in time",
        next_step="write it like 2026-05-04T13:00, 13:00 (today) or 10m (ago)",
    )
