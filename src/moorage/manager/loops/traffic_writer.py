"""Traffic writer: records once a second which sessions had traffic, through apps or commands.

Every manager writes the traffic that passes through it. Without traffic, it writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import Store

EVERY_S = 1.0


class TrafficWriter:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._touched: set[str] = set()
        self._open: dict[str, int] = {}
        self.loop = Loop("traffic", self.run_once, interval_s=EVERY_S, clock=clock)

    def record(self, sessions: Collection[str]) -> None:
        """Record that these sessions had traffic."""
        self._touched.update(sessions)

    @contextmanager
    def using(self, session_id: str) -> Iterator[None]:
        """Record traffic for the session until the context is left."""
        self._open[session_id] = self._open.get(session_id, 0) + 1
        self._touched.add(session_id)

        try:
            yield
        finally:
            self._open[session_id] -= 1
            if not self._open[session_id]:
                del self._open[session_id]

            self._touched.add(session_id)

    async def run_once(self) -> None:
        touched = self._touched
        self._touched = set()
        try:
            await self._store.idle.saw_traffic(touched | self._open.keys())
        except StoreUnavailable:
            self._touched |= touched
            raise
