"""Paced waking of agents' streams when all of them must send the same message.

Each stream writes its message when it wakes. If thousands woke simultaneously, they would keep the
event loop busy for too long, so that requests would wait and the leader's lease would not be
renewed in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

# 5,000 a second, so a manager with 25,000 agents wakes all of their streams within 5 s.
AT_ONCE = 100
PAUSE_S = 0.02


class StreamWakeups:
    def __init__(self) -> None:
        self._left: list[asyncio.Event] = []
        self._timer: asyncio.TimerHandle | None = None

    def wake(self, events: Iterable[asyncio.Event]) -> None:
        """Set all of these events, the first immediately. Events left over from an earlier call are
        included."""
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
