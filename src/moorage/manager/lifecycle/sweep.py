"""Sweep over all rows in chunks, round after round, in addition to the processing of changed rows.
Pure.

It finds changes that no notification announced. Chunks have a fixed size, so the load is constant;
with more rows, a round only takes longer.
"""

from __future__ import annotations

from typing import Generic, TypeVar

Cursor = TypeVar("Cursor")


class Sweep(Generic[Cursor]):
    """``cursor``: the beginning of the next chunk; None means the start. ``urgent``: this round
    follows an event after which notifications may be missing, so its chunks follow each other
    immediately."""

    def __init__(self) -> None:
        self.cursor: Cursor | None = None
        self.urgent = True
        self._restarted = False

    def restart(self) -> None:
        """Start a new round, because anything may have changed unnoticed, even in the chunk in
        progress."""
        self.cursor = None
        self.urgent = True
        self._restarted = True

    def begin(self) -> Cursor | None:
        """Start the next chunk; ``advance`` ends it. Returns ``cursor``."""
        self._restarted = False
        return self.cursor

    def advance(self, cursor: Cursor | None) -> None:
        """End a chunk. ``cursor``: the beginning of the next chunk, or None if this was the
        last."""
        if not self._restarted:
            self.cursor = cursor
            self.urgent = self.urgent and cursor is not None
