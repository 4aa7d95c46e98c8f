"""Logs that are read on where they were cut off, as when the manager restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from moorage.common.aio.clock import Clock
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.event_stream import PASSING
from moorage.sdk.log_positions import MarkSearch, SeenLog

# How long nobody may answer before the error is raised.
OUTAGE_S = 30.0
FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The part of a log to read. ``tail``: the last lines; None: all that is kept. ``timestamps``:
    each line begins with its time. ``since``: not what was written before, RFC 3339. ``attempt``:
    None: the newest."""

    tail: int | None = None
    follow: bool = False
    timestamps: bool = False
    since: str | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """An answer begins. ``offset``: the number of its first byte, of those of this ``attempt``;
    None: not known."""

    offset: int | None
    attempt: int | None = None


class Read(Protocol):
    """One reading of a log. ``offset``: from this byte on; None: from the first one that is kept,
    as older managers read."""

    def __call__(
        self, query: LogSelection, offset: int | None, /
    ) -> AsyncIterator[Begin | bytes]: ...


def warn_of_loss() -> None:
    _log.warning("output was lost: the node has rotated the log before it was read")


class LogReader:
    """Reads the log that ``query`` selects, across interrupted answers. ``seen``: an earlier
    reading to continue.

    ``on_loss``: called when output was rotated away before it was seen; what is kept follows.
    """

    def __init__(
        self,
        read: Read,
        query: LogSelection,
        clock: Clock,
        *,
        seen: SeenLog | None = None,
        on_loss: Callable[[], None] = warn_of_loss,
    ) -> None:
        self._read = read
        self._query = query
        self._clock = clock
        self._on_loss = on_loss
        self._seen = SeenLog(complete=query.tail is None) if seen is None else seen
        self._connected = not self._seen.is_empty
        self._has_progressed = False
        self._pause_s = FIRST_PAUSE_S
        self._began_at = 0.0
        self._down_since: float | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Raises what the first reading raises before its first piece. Later, a log that is
        followed raises the error of an outage of ``OUTAGE_S``, and any other one that of a reading
        without progress."""
        while True:
            self._began_at = self._clock.monotonic()
            self._has_progressed = False
            try:
                async with aclosing(self._reading()) as new_pieces:  # type: ignore[type-var]  # a generator
                    async for new in new_pieces:
                        yield new

                if not self._seen.is_displaced and self._seen.end():
                    return
            except (ApiError, Unreachable) as error:
                if not self._may_go_on(error):
                    raise

            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    async def _reading(self) -> AsyncIterator[bytes]:
        """Yield the new bytes of one answer."""
        seen = self._seen
        if seen.place is None and not seen.is_empty and not seen.reread():
            await self._find_place()

        async with aclosing(self._open()) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                self._connected = True
                if isinstance(piece, Begin):
                    self._began_at = self._clock.monotonic()
                    self._place_at(piece)
                else:
                    self._progress()
                    if new := seen.feed(piece):
                        yield new

                if seen.is_displaced:
                    return

    def _open(self) -> AsyncIterator[Begin | bytes]:
        seen = self._seen
        query = self._query
        if seen.place is not None:
            # From a byte of the attempt that was read, whatever the beginning was and the newest
            # one is.
            return self._read(
                replace(query, tail=None, since=None, attempt=seen.attempt), seen.place
            )

        if seen.is_empty:
            return self._read(query, 0)

        return self._read(replace(query, tail=None), None)

    def _place_at(self, begin: Begin) -> None:
        query = self._query
        number = self._seen.number
        is_whole = (
            number is None and self._seen.is_empty and query.tail is None and query.since is None
        )
        is_behind = self._seen.begin(begin.offset, timed=query.timestamps)
        self._seen.attempt = query.attempt if begin.attempt is None else begin.attempt
        if not is_behind or (is_whole and begin.offset):
            self._on_loss()
            self._progress()

    async def _find_place(self) -> None:
        """In a reading that ends: only its end tells that what was seen last is no longer kept."""
        search = MarkSearch(self._seen.mark)
        whole = replace(self._query, tail=None, follow=False)
        async with aclosing(self._read(whole, None)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if isinstance(piece, bytes):
                    search.feed(piece)
                if search.is_decided:
                    break

        if not self._seen.found(search):
            self._on_loss()

        self._seen.reread()

    def _progress(self) -> None:
        self._has_progressed = True
        self._down_since = None
        self._pause_s = FIRST_PAUSE_S

    def _may_go_on(self, error: ApiError | Unreachable) -> bool:
        if not self._query.follow:
            return self._has_progressed and self._seen.place is not None

        now = self._clock.monotonic()
        if now - self._began_at > OUTAGE_S:
            # It was connected, and silent, for longer than an outage may last. A shorter answer
            # without a byte is no progress: so does one end whose log nobody can read.
            self._connected = True
            self._progress()

        self._down_since = now if self._down_since is None else self._down_since
        is_passing = isinstance(error, Unreachable) or error.status in PASSING
        return self._connected and is_passing and now - self._down_since <= OUTAGE_S
