"""The manager's event stream for clients. After an interruption, it resumes where it stopped.

It needs no separate task: while no caller waits, events accumulate in the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from moorage.common.aio.clock import Clock
from moorage.common.views.events import StreamStart
from moorage.sdk.connections import Streamed
from moorage.sdk.errors import ApiError, Unreachable

# Statuses of a manager that is restarting or has too many streams.
PASSING = frozenset({429, 502, 503, 504})
# The manager sends a heartbeat every 15 s.
_SILENCE_S = 40.0
# Pause between two attempts to open the stream; each failure doubles it.
_REOPEN_S = 0.5
_LONGEST_REOPEN_S = 15.0
# Streams that end earlier are cut by an intermediary, so the next one is not opened immediately.
_SHORT_S = 2.0
# Pauses that pause_s returns: without a stream, at first with a stream, and at most with a stream.
_POLL_S = 0.5
_QUIET_S = 1.0
_LONGEST_QUIET_S = 15.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """``kind`` and ``data`` are empty for a heartbeat. ``id``: the id of the last event so far;
    empty before the first."""

    kind: str
    data: str
    id: str


class EventParser:
    """Parser of an event stream. ``feed`` accepts its bytes as they arrive. Pure."""

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        *blocks, self._rest = (self._rest + piece).split(b"\n\n")
        for block in blocks:
            kind = "message"
            data = list[str]()
            for line in block.decode(errors="replace").split("\n"):
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "event":
                    kind = value
                elif name == "data":
                    data.append(value)
                elif name == "id":
                    self._id = value

            yield ServerEvent(kind if data else "", "\n".join(data), self._id)


def pause_s(quiet: int, live: bool) -> float:
    """How long to wait for an event before reading anyway. Reads are also necessary with a stream,
    because frequent changes, such as the reason why a session waits, are not events. ``quiet``:
    number of pauses since the last event. Pure."""
    return min(_QUIET_S * 2**quiet, _LONGEST_QUIET_S) if live else _POLL_S


class EventStream:
    """``open_stream`` starts the stream after the event with the given id; with "", it starts
    now."""

    def __init__(self, open_stream: Callable[[str], Awaitable[Streamed]], clock: Clock) -> None:
        self._open_stream = open_stream
        self._clock = clock
        self._answer: Streamed | None = None
        self._parser = EventParser()
        self._last = ""
        self._live = False
        self._quiet = 0
        self._failures = 0
        self._reopen_at = 0.0
        self._opened_at = 0.0
        self._heard_at = 0.0

    def close(self) -> None:
        self._live = False
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    async def wait(self) -> None:
        """Wait until something may have changed. Never raises."""
        answer = self._answer or await self._open()
        if answer is None:
            await asyncio.sleep(_POLL_S)
            return

        try:
            async with asyncio.timeout(pause_s(self._quiet, self._live)):
                while not await self._has_changed(answer):
                    pass

            self._quiet = 0
        except TimeoutError:
            self._quiet += 1
            if self._clock.monotonic() - self._heard_at > _SILENCE_S:
                self.close()
        except OSError:
            self.close()
            if self._clock.monotonic() - self._opened_at < _SHORT_S:
                self._reopen_at = self._clock.monotonic() + _REOPEN_S

    async def _open(self) -> Streamed | None:
        if self._clock.monotonic() < self._reopen_at:
            return None

        try:
            self._answer = await self._open_stream(self._last)
        except (ApiError, Unreachable) as error:
            pause = min(_REOPEN_S * 2**self._failures, _LONGEST_REOPEN_S)
            if isinstance(error, ApiError) and error.status not in PASSING:
                pause = float(
                    "inf"
                )  # a manager without this stream; if the key is the cause, reads will fail

            self._failures += 1
            self._reopen_at = self._clock.monotonic() + pause
            return None

        self._parser = EventParser()
        self._opened_at = self._clock.monotonic()
        self._heard_at = self._opened_at
        return self._answer

    async def _has_changed(self, answer: Streamed) -> bool:
        """Continue reading. Raises ``OSError`` at the end of the stream."""
        piece = await answer.next_piece()
        if piece is None:
            raise ConnectionError("the stream ended")

        self._heard_at = self._clock.monotonic()
        changed = False
        for event in self._parser.feed(piece):
            self._last = event.id or self._last
            if event.kind == "ready":
                self._live = True
                self._failures = 0

            changed = changed or (event.kind != "" and not _is_resumed(event))

        return changed


def _is_resumed(event: ServerEvent) -> bool:
    """Whether ``event`` starts a stream that continues where the previous one ended."""
    try:
        return event.kind == "ready" and StreamStart.model_validate_json(event.data).resumed
    except ValueError:
        return False
