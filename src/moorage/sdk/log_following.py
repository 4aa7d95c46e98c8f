"""Followed logs that go on where they were cut off, as when the manager restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from moorage.common.aio.clock import Clock
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.event_stream import PASSING

# How long nobody may answer before the error is raised.
OUTAGE_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0
_MARK_BYTES = 4096


class SeenLog:
    """What was seen of a log, so that another reading of all of it goes on behind that. Pure.

    ``complete``: the first reading began at the beginning. Otherwise the place is found by the last bytes
    that were seen.
    """

    def __init__(self, *, complete: bool) -> None:
        self._complete, self._seen, self._end = complete, 0, b""
        self._to_skip, self._searched = 0, b""
        self._searching = False

    @property
    def is_empty(self) -> bool:
        return not self._seen

    def reread(self) -> None:
        """The pieces that follow are of another reading, from the beginning."""
        self._to_skip, self._searched = self._seen if self._complete else 0, b""
        self._searching = bool(self._end) and not self._complete

    def feed(self, piece: bytes) -> bytes:
        """What is new in ``piece``."""
        if self._searching:
            self._searched += piece
            before, found, piece = self._searched.partition(self._end)
            if not found:
                self._searched = before[max(len(before) - len(self._end) + 1, 0) :]
                return b""
            self._searching, self._searched = False, b""
        skipped = min(self._to_skip, len(piece))
        self._to_skip -= skipped
        piece = piece[skipped:]
        self._seen += len(piece)
        self._end = (self._end + piece)[-_MARK_BYTES:]
        return piece


async def follow_log(
    read: Callable[[int | None], AsyncIterator[bytes]], tail: int | None, clock: Clock
) -> AsyncIterator[bytes]:
    """The pieces of ``read(tail)``. When they are cut off, ``read(None)`` is read from behind what was seen.

    Raises what the first reading raises before its first piece, and the error of an outage of ``OUTAGE_S``.
    """
    seen, connected, pause_s = SeenLog(complete=tail is None), False, _FIRST_PAUSE_S
    down_since: float | None = None
    while True:
        began = clock.monotonic()
        if not seen.is_empty:
            seen.reread()
        try:
            pieces = read(tail if seen.is_empty else None)
            async with aclosing(pieces):  # type: ignore[type-var]  # it is a generator
                async for piece in pieces:
                    connected, down_since, pause_s = True, None, _FIRST_PAUSE_S
                    if new := seen.feed(piece):
                        yield new
            return
        except (ApiError, Unreachable) as error:
            now = clock.monotonic()
            if now - began > OUTAGE_S:  # it was connected, and silent
                connected, down_since = True, None
            down_since = now if down_since is None else down_since
            passing = isinstance(error, Unreachable) or error.status in PASSING
            if not connected or not passing or now - down_since > OUTAGE_S:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
