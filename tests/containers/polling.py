"""Polling with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TIMEOUT_S = 60.0


def until(what: str, check: Callable[[], T]) -> T:
    """Returns the first true result of ``check``. An assertion that fails in it is retried, and
    shown on timeout."""
    deadline = time.monotonic() + TIMEOUT_S
    last = "it was never true"
    while time.monotonic() < deadline:
        try:
            if result := check():
                return result
        except AssertionError as error:
            last = str(error)

        time.sleep(0.2)

    raise AssertionError(f"not within {TIMEOUT_S:g} s: {what} ({last})")
