"""Garbage collector settings for daemons."""

from __future__ import annotations

import gc

# New objects that trigger a collection of the youngest generation; CPython's default is 700. One
# request allocates hundreds of objects, and reference counting frees nearly all of them. Only
# cycles are collected a little later.
YOUNG_THRESHOLD = 10_000


def freeze_startup_objects() -> None:
    """Exclude everything allocated so far from later collections. Call once, when start-up is
    complete."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_THRESHOLD, 20, 20)
