"""Paced waking of the streams of agents, when all of them are to be told the same.

Each stream writes its message when it wakes. Thousands that wake at once keep the event loop busy
for long: requests wait, and the lease of the leader is not renewed in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

# 5,000 a second: those of a manager with 25,000 agents are told within 5 s.
AT_ONCE = 100
PAUSE_S = 0.02


class StreamWakeups:
    def __init__(self) -> None:
        self._left: list[asyncio.Event] = []
        self._timer: asyncio.TimerHandle | None = None

    def wake(self, events: Iterable[asyncio.Event]) -> None:
        """Set all of these, the first at once. Those that are left from an earlier call are among
        them."""
        self._left = list(events)
        if self._timer is None:
            self._set_some()

    def _set_some(self) -> None:
        self._timer = None
        for event in self._left[-AT_ONCE:]:
            event.set()
        del self._left[-AT_ONCE:]
        if self._left:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._set_some)
