"""Logs whose reading continues where it was cut off, for example by a restart of the manager."""

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

# How long an outage can last before its error is raised.
OUTAGE_S = 30.0
FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The part of a log to read. ``tail``: the number of last lines; None means the whole stored
    log. ``timestamps``: each line starts with its time. ``since``: only output written since this
    time (RFC 3339). ``attempt``: None means the newest."""

    tail: int | None = None
    follow: bool = False
    timestamps: bool = False
    since: str | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of an answer. ``offset``: the position of its first byte in the log of
    ``attempt``; None if unknown."""

    offset: int | None
    attempt: int | None = None


class Read(Protocol):
    """Reads a log once. ``offset``: the first byte to read; None means the first stored one, the
    only choice with older managers."""

    def __call__(
        self, query: LogSelection, offset: int | None, /
    ) -> AsyncIterator[Begin | bytes]: ...


def warn_of_loss() -> None:
    _log.warning("output was lost: the node has rotated the log before it was read")


class LogReader:
    """Reads the log selected by ``query``, across interrupted answers. ``seen``: an earlier reading
    to continue.

    ``on_loss``: called when output was rotated away before it was read; the remaining output
    follows.
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
        """Yield the log in pieces. Raises any error of the first reading before its first piece.
        After that, a followed log raises the error of an outage longer than ``OUTAGE_S``, and any
        other log raises the error of a reading that made no progress."""
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
            # Continue at a byte of the same attempt, wherever reading began and whichever attempt
            # is the newest.
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
        """Find the place in a reading without ``follow``, because only the end of a reading shows
        that the last bytes seen are no longer stored."""
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
            # The connection was open and silent for longer than an outage can last. A shorter
            # answer without any byte is not progress, because it may come from a log that cannot be
            # read.
            self._connected = True
            self._progress()

        self._down_since = now if self._down_since is None else self._down_since
        is_passing = isinstance(error, Unreachable) or error.status in PASSING
        return self._connected and is_passing and now - self._down_since <= OUTAGE_S
