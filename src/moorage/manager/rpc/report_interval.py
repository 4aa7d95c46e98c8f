"""Backpressure on agents: the minimum interval between two reports of an agent. Pure.

If reports wait because the manager is busy, fewer reports with more changes in each relieve it. Agents are
therefore told to wait in proportion to how long their reports waited, as the store's batch writers do
(decision 7). An agent cannot know this by itself, since sending a report costs it almost nothing.
"""

from __future__ import annotations

from moorage.common.aio.pauses import ON_BACKLOG

# Below this the interval is 0: agents pause a little in any case.
MIN_S = 0.03
# Weight of the newest report in the moving average, which covers about twenty reports of any agents.
WEIGHT = 0.05


class ReportInterval:
    def __init__(self) -> None:
        self._average_wait_s = 0.0

    def record(self, seconds: float) -> None:
        """Record how long a report with changes took from its arrival until it was applied."""
        self._average_wait_s += WEIGHT * (seconds - self._average_wait_s)

    @property
    def interval_s(self) -> float:
        """Minimum seconds between two reports of an agent; 0: no limit."""
        interval_s = ON_BACKLOG.seconds(self._average_wait_s)
        return 0.0 if interval_s < MIN_S else interval_s
