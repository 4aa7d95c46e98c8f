"""Order polling: selects agents whose orders are read again without a notification. Pure.

Every agent is polled within ``POLL_S``, but at most ``POLLED_PER_S`` agents per second, so that the
cost of polling does not depend on their number. ``POLLED_KERNELS`` kernels count as one agent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import ceil
from typing import Protocol

from moorage.common.model.ids import AgentId

POLL_S = 5.0
POLL_PARTS = 10
POLLED_PER_S = 100
POLLED_KERNELS = 20


class Ordered(Protocol):
    @property
    def ordered_kernels(self) -> int: ...


class OrdersPolling:
    """``now``: monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._unpolled: deque[AgentId] = deque()
        self._budget = 0.0
        self._polled_at = now

    def due(self, streams: Mapping[AgentId, Ordered], now: float) -> list[AgentId]:
        """The connected agents to poll now. Their number grows with the time since the last
        poll."""
        waited_s = now - self._polled_at
        if waited_s < 0.8 * POLL_S / POLL_PARTS:
            return []

        self._polled_at = now
        waited_s = min(waited_s, POLL_S)
        count = ceil(len(streams) * waited_s / POLL_S)
        self._budget = min(self._budget, 0.0) + POLLED_PER_S * waited_s
        if len(self._unpolled) < count:
            self._unpolled += streams

        part: list[AgentId] = []
        while self._unpolled and len(part) < count and self._budget > 0:
            agent_id = self._unpolled.popleft()
            if (stream := streams.get(agent_id)) is not None:
                part.append(agent_id)
                self._budget -= 1 + stream.ordered_kernels / POLLED_KERNELS

        return part
