"""Waits for a session or endpoint to reach a state: the outages they tolerate, and their
conditions.

The manager's event stream signals when to read again. Without it, for example behind a proxy that
refuses streams or while the manager restarts, reads are repeated at intervals. A wait that gets no
events therefore still ends correctly, but later.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from moorage.common.aio.clock import Clock
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.event_stream import PASSING

if TYPE_CHECKING:
    from moorage.common.views.resources import SessionView

T = TypeVar("T")

# A wait survives a restart of the manager.
OUTAGE_S = 30.0


class OutageTolerance:
    """Tolerates outages of the manager for ``OUTAGE_S`` seconds, then raises their error."""

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


def has_reloaded(view: SessionView, asked: SessionView) -> bool:
    """Whether each kernel has finished the reload identified by ``asked``, successfully or not."""
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
    """The first state from ``Events.states`` for which ``condition`` holds."""
    async with aclosing(states):
        async for state in states:
            if condition(state):
                return state
    raise AssertionError("states() ends only by raising")
