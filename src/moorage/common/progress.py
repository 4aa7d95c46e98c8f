"""Progress reports from the calling program. Imports no other package."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from moorage.common.aio.clock import SystemClock
from moorage.common.model.progress import PROGRESS_VAR

# The agent reads less often than this, and an endless loop must not fill the disk.
_PAUSE_S = 0.5
_MESSAGE = 200
_CLOCK = SystemClock()
_reported_at = 0.0


def report(fraction: float | None, step: int | None, of: int | None, message: str) -> None:
    """Append a line to the file that the agent reads: always for the last step, otherwise at most
    twice a second."""
    global _reported_at
    path = os.environ.get(PROGRESS_VAR)
    now = _CLOCK.monotonic()
    if not path:
        return

    last = fraction == 1 or (step is not None and step == of)
    if not last and _reported_at and now - _reported_at < _PAUSE_S:
        return

    _reported_at = now
    _append(
        path, {"fraction": fraction, "step": step, "of": of, "message": str(message)[:_MESSAGE]}
    )


def acknowledge(success: bool, message: str) -> None:
    """Append the line that ends a reload."""
    if path := os.environ.get(PROGRESS_VAR):
        _append(path, {"reloaded": success, "message": str(message)[:_MESSAGE]})


def _append(path: str, given: dict[str, object]) -> None:
    # A full disk must not stop a program.
    with suppress(OSError, TypeError, ValueError):
        line = json.dumps({name: value for name, value in given.items() if value not in (None, "")})
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
