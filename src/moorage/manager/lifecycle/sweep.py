"""Sweep: a look at everything in chunks, round after round, beside the looks at what has changed.
Pure.

It finds what no notification announced. A chunk has the same size however much exists, so a sweep
costs the same; only its rounds take longer.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Cursor = TypeVar("Cursor")


class Sweep(Generic[Cursor]):
    """``cursor``: where the next chunk begins; None: at the start. ``urgent``: this round follows
    an event after which notifications may be missing, so its chunks follow each other at once."""

    def __init__(self) -> None:
        self.cursor: Cursor | None = None
        self.urgent = True
        self._restarted = False

    def restart(self) -> None:
        """Anything may have changed unnoticed, also in the chunk that is being looked at."""
        self.cursor = None
        self.urgent = True
        self._restarted = True

    def begin(self) -> Cursor | None:
        """Begin to look at the next chunk, which ``advance`` follows. Returns ``cursor``."""
        self._restarted = False
        return self.cursor

    def advance(self, cursor: Cursor | None) -> None:
        """The chunk was looked at. ``cursor``: of the next one; None: it was the last."""
        if not self._restarted:
            self.cursor = cursor
            self.urgent = self.urgent and cursor is not None
