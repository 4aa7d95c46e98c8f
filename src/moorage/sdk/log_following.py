"""Followed logs that go on where they were cut off, as when the manager restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Protocol

from moorage.common.aio.clock import Clock
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.event_stream import PASSING
from moorage.sdk.log_positions import MarkSearch, SeenLog

# How long nobody may answer before the error is raised.
OUTAGE_S = 30.0
FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0
_log = logging.getLogger(__name__)


class Read(Protocol):
    """One reading of a log: the last ``tail`` lines, or all that is kept."""

    def __call__(self, tail: int | None, *, follow: bool) -> AsyncIterator[bytes]: ...


def warn_of_loss() -> None:
    _log.warning("output was lost: the log was rotated while it could not be read")


async def follow_log(
    read: Read,
    tail: int | None,
    clock: Clock,
    *,
    seen: SeenLog | None = None,
    on_loss: Callable[[], None] = warn_of_loss,
) -> AsyncIterator[bytes]:
    """The pieces of ``read(tail)``. When they are cut off, what is kept is read from behind what was seen.

    ``seen``: go on behind that. ``on_loss``: called when output was rotated away before it was seen; what is
    kept follows. Raises what the first reading raises before its first piece, and the error of an outage of
    ``OUTAGE_S``.
    """
    seen = SeenLog(complete=tail is None) if seen is None else seen
    connected, pause_s = not seen.is_empty, FIRST_PAUSE_S
    down_since: float | None = None
    while True:
        began, connected_at = clock.monotonic(), None
        try:
            if not seen.is_empty and not seen.reread():
                await _find_place(read, seen, on_loss)
            pieces = read(tail if seen.is_empty else None, follow=True)
            async with aclosing(pieces):  # type: ignore[type-var]  # it is a generator
                async for piece in pieces:
                    connected = True
                    if piece:
                        down_since, pause_s = None, FIRST_PAUSE_S
                    else:
                        connected_at = clock.monotonic()
                    if new := seen.feed(piece):
                        yield new
                    if seen.is_displaced:
                        break
                else:
                    if seen.end():
                        return
        except (ApiError, Unreachable) as error:
            now = clock.monotonic()
            if now - (began if connected_at is None else connected_at) > OUTAGE_S:
                # It was connected, and silent, for longer than an outage may last. A shorter answer without
                # a byte is no progress: so does one end whose log nobody can read.
                connected, down_since, pause_s = True, None, FIRST_PAUSE_S
            down_since = now if down_since is None else down_since
            passing = isinstance(error, Unreachable) or error.status in PASSING
            if not connected or not passing or now - down_since > OUTAGE_S:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


async def _find_place(read: Read, seen: SeenLog, on_loss: Callable[[], None]) -> None:
    """In a reading that ends: only its end tells that what was seen last is no longer kept."""
    search = MarkSearch(seen.mark)
    pieces = read(None, follow=False)
    async with aclosing(pieces):  # type: ignore[type-var]  # it is a generator
        async for piece in pieces:
            search.feed(piece)
            if search.is_decided:
                break
    if not seen.place(search):
        on_loss()
    seen.reread()
