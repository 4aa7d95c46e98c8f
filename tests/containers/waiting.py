"""Looks again until something is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
WITHIN_S = 60.0


def until(what: str, look: Callable[[], T]) -> T:
    """What ``look`` finds; an assertion that fails in it is looked at again, and shown when time is up."""
    end, last = time.monotonic() + WITHIN_S, "it was never true"
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except AssertionError as error:
            last = str(error)
        time.sleep(0.2)
    raise AssertionError(f"not within {WITHIN_S:g} s: {what} ({last})")
