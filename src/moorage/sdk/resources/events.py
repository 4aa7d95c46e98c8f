"""The event stream, and waits for changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, closing
from typing import TypeVar

from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.views.events import EventKind
from moorage.sdk.connections import Streamed
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.event_stream import EventParser, EventStream, ServerEvent
from moorage.sdk.resource import Resource, SyncResource, iterated
from moorage.sdk.waiting import OutageTolerance

T = TypeVar("T")

# If a stream takes longer to start, the wait does without it.
_BEGIN_S = 5.0


class Events(Resource):
    """The event stream, and waits for changes."""

    async def follow(
        self, *kinds: EventKind, about: str | None = None, after: str = ""
    ) -> AsyncGenerator[ServerEvent]:
        """Yield events from now on, or after the event with the id ``after``. Each has a ``kind``
        and ``data``, which is JSON in the schema of the kind. The kind "reset" means that some
        events were lost. ``kinds``, ``about``: as in ``changes``. Ends when the manager ends the
        stream, for example because the key's rights have changed. Raises ``ApiError`` and
        ``Unreachable``, and ``OSError`` if the connection breaks."""
        query = {"kinds": ",".join(sorted(kinds)) or None, "about": about}
        headers = {"Last-Event-ID": after} if after else {}
        parser = EventParser()
        with closing(
            await self._client.stream("/v1/events", query, headers, begin_s=self._client.timeout)
        ) as stream:
            while (piece := await stream.next_piece()) is not None:
                for event in parser.feed(piece):
                    if event.kind not in ("", "ready"):
                        yield event

    async def changes(
        self, *kinds: EventKind, about: str | None = None, clock: Clock | None = None
    ) -> AsyncGenerator[None]:
        """Yield immediately, and whenever something may have changed; other calls show the change.
        Never ends and never raises.

        ``kinds``: only changes of these kinds; none means all. ``about``: only changes to the
        session or endpoint with this id, including its replicas.
        """
        query = {"kinds": ",".join(sorted(kinds)) or None, "about": about}

        async def open_stream(last_event_id: str) -> Streamed:
            headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
            begin_s = min(_BEGIN_S, self._client.timeout)
            return await self._client.stream("/v1/events", query, headers, begin_s=begin_s)

        with closing(EventStream(open_stream, clock or SystemClock())) as stream:
            while True:
                yield
                await stream.wait()

    async def states(
        self,
        read: Callable[[], Awaitable[T]],
        *kinds: EventKind,
        about: str | None = None,
        timeout_s: float | None = None,
        clock: Clock | None = None,
    ) -> AsyncGenerator[T]:
        """Yield results of ``read``, now and whenever they may have changed. Manager outages of up
        to ``OUTAGE_S`` are tolerated. ``kinds``, ``about``: as in ``changes``.

        Raises ``TimeoutError`` after ``timeout_s``, and any error of ``read``.
        """
        clock = clock or SystemClock()
        outage = OutageTolerance(clock)
        ends_at = clock.monotonic() + (timeout_s or 0)
        async with aclosing(self.changes(*kinds, about=about, clock=clock)) as changes:
            await anext(changes)
            while True:
                try:
                    state = await read()
                except (Unreachable, ApiError) as error:
                    outage.failed(error)
                else:
                    outage.succeeded()
                    yield state

                left_s = None if timeout_s is None else ends_at - clock.monotonic()
                if left_s is not None and left_s <= 0:  # even if changes arrive without a pause
                    raise TimeoutError

                async with asyncio.timeout(left_s):
                    await anext(changes)


class SyncEvents(SyncResource[Events]):
    """``Events`` without asyncio."""

    follow = iterated(Events.follow)
