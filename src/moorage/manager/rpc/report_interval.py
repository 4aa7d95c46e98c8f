"""Report interval: the minimum pause between two reports of changes, and the maximum between two
heartbeats. Pure.

If reports wait because the manager is busy, it helps to send fewer reports, each with more changes.
Agents are therefore asked to wait in proportion to how long their reports waited, as the store's
batch writers do (decision 7). An agent cannot notice this on its own, because sending a report
costs it almost nothing.

The heartbeats of all agents together arrive at a bounded rate, no matter how many agents there are.
An agent reports the interval that it uses, and is SUSPECT after three intervals at the earliest
(``lifecycle.silence``).
"""

from __future__ import annotations

from math import ceil

from moorage.common.aio.pauses import ON_BACKLOG

# Below this, the minimum pause is 0, because agents always pause a little.
MIN_S = 0.03
# Weight of the newest report in the moving average, which covers about the last twenty reports from
# all agents.
WEIGHT = 0.05
# Maximum rate of heartbeats per second, from all agents together.
HEARTBEATS_PER_S = 400
# The interval is a multiple of the first value. It shrinks only if the fleet has shrunk by the
# second, because every agent reports each change of the interval.
STEP_S = 5.0
SHRINK = 1.25


class ReportInterval:
    """``heartbeat_s``: the longest pause between two reports from an agent; 0 means the agent's own
    setting."""

    def __init__(self) -> None:
        self._average_wait_s = 0.0
        self.heartbeat_s = 0.0

    def record(self, seconds: float) -> None:
        """Record how long a report with changes took from its arrival until it was applied."""
        self._average_wait_s += WEIGHT * (seconds - self._average_wait_s)

    @property
    def pause_s(self) -> float:
        """Minimum seconds between two reports from an agent; 0 means no limit."""
        pause_s = ON_BACKLOG.seconds(self._average_wait_s)
        return 0.0 if pause_s < MIN_S else pause_s

    def adapt(self, agents: int) -> None:
        """Adapt to the number of agents across all managers."""
        if not _heartbeat_s(agents) <= self.heartbeat_s <= _heartbeat_s(ceil(SHRINK * agents)):
            self.heartbeat_s = _heartbeat_s(agents)


def _heartbeat_s(agents: int) -> float:
    steps = ceil(agents / (HEARTBEATS_PER_S * STEP_S))
    return steps * STEP_S if steps > 1 else 0.0
