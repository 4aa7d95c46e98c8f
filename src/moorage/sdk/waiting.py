"""Calls that wait: for a session or an endpoint to reach a state, and for anything to change.

The manager's event stream says when to read again. Without it, as behind a proxy that refuses
streams or while the manager restarts, reads are repeated: every wait is right without a single
event, and only later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, closing
from typing import TypeVar

from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.views.endpoints import EndpointView
from moorage.common.views.events import EventKind
from moorage.common.views.resources import SessionView
from moorage.sdk.connections import Streamed
from moorage.sdk.endpoints import EndpointCalls
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.event_stream import PASSING, EventStream
from moorage.sdk.sessions import SessionCalls

T = TypeVar("T")

# A wait survives a restart of the manager.
OUTAGE_S = 30.0
# A stream that takes longer to begin is done without.
_BEGIN_S = 5.0


class _OutageTolerance:
    """Tolerates that the manager does not answer for ``OUTAGE_S`` seconds, then raises its
    error."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None

    def succeeded(self) -> None:
        self._since = None

    def failed(self, error: Unreachable | ApiError) -> None:
        if isinstance(error, ApiError) and error.status not in PASSING:
            raise error
        self._since = self._since or self._clock.monotonic()
        if self._clock.monotonic() - self._since > OUTAGE_S:
            raise error


class WaitCalls(SessionCalls, EndpointCalls):
    async def changes(
        self, *kinds: EventKind, about: str | None = None, clock: Clock | None = None
    ) -> AsyncGenerator[None]:
        """Yields at once, and whenever something may have changed: what, the other calls tell.
        Never ends, and raises nothing.

        ``kinds``: only changes of these; none means all. ``about``: only what concerns the session
        or the endpoint with this id, its replicas included.
        """
        query = {"kinds": ",".join(sorted(kinds)) or None, "about": about}

        async def open_stream(last_event_id: str) -> Streamed:
            headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
            begin_s = min(_BEGIN_S, self.timeout)
            return await self.stream("/v1/events", query, headers, begin_s=begin_s)

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
        """What ``read`` returns, now and whenever it may have changed. Outages of the manager of up
        to ``OUTAGE_S`` are tolerated. ``kinds``, ``about``: as for ``changes``.

        Raises ``TimeoutError`` after ``timeout_s``, and what ``read`` raises.
        """
        clock = clock or SystemClock()
        outage = _OutageTolerance(clock)
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
                if left_s is not None and left_s <= 0:  # also when changes come without a pause
                    raise TimeoutError

                async with asyncio.timeout(left_s):
                    await anext(changes)

    async def wait_session(
        self, ref: str, condition: Callable[[SessionView], bool], *, timeout_s: float | None = None
    ) -> SessionView:
        """The session, by id or name, as soon as ``condition`` holds.

        Raises ``TimeoutError`` after ``timeout_s``, ``ApiError`` and ``Unreachable``.
        """
        found = await self.get_session(ref)
        if condition(found):
            return found

        states = self.states(
            lambda: self.get_session(found.id), "session", about=found.id, timeout_s=timeout_s
        )
        return await first(states, condition)

    async def wait_reloaded(
        self, asked: SessionView, *, timeout_s: float | None = None
    ) -> SessionView:
        """The session once each of its kernels has acknowledged the reload that ``asked``, the
        answer of ``reload_session``, names, or has failed to: ``reload.state`` of each tells which.
        Raises as ``wait_session`` does."""
        return await self.wait_session(
            asked.id, lambda view: has_reloaded(view, asked), timeout_s=timeout_s
        )

    async def wait_endpoint(
        self,
        name: str,
        condition: Callable[[EndpointView], bool],
        *,
        timeout_s: float | None = None,
    ) -> EndpointView:
        """The endpoint as soon as ``condition`` holds. Raises as ``wait_session`` does."""
        found = await self.get_endpoint(name)
        if condition(found):
            return found

        states = self.states(
            lambda: self.get_endpoint(name),
            "session",
            "endpoint",
            about=found.id,
            timeout_s=timeout_s,
        )
        return await first(states, condition)


def has_reloaded(view: SessionView, asked: SessionView) -> bool:
    """Whether each kernel has ended the reload that ``asked`` names, one way or the other."""
    wanted = {
        kernel.id: kernel.reload.generation for kernel in asked.kernels if kernel.reload is not None
    }
    return all(
        kernel.reload is None
        or kernel.reload.state == "ended"
        or kernel.reload.ended >= wanted[kernel.id]
        for kernel in view.kernels
        if kernel.id in wanted
    )


async def first(states: AsyncGenerator[T], condition: Callable[[T], bool]) -> T:
    """The first for which ``condition`` holds of those that ``WaitCalls.states`` yields."""
    async with aclosing(states):
        async for state in states:
            if condition(state):
                return state
    raise AssertionError("states() only ends by raising")
