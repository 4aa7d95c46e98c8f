"""Pauses under load, taken after each piece of work so that items that arrive during the pause
share the next piece.

A pause is proportional to the cost of the work, and bounded. It is not noticeable at low load;
under load, batches grow, and so does throughput (decision 7). All pauses are defined here, and
measured by one metric.
"""

from __future__ import annotations

from collections import defaultdict

# Seconds of pauses in this process so far, by the name of the pause.
PAUSED: defaultdict[str, float] = defaultdict(float)


class Pause:
    """``factor``: the pause as a multiple of the time that the work took, at least ``shortest_s``
    and at most ``longest_s``."""

    def __init__(self, name: str, factor: float, longest_s: float, shortest_s: float = 0.0) -> None:
        self.name = name
        self.factor = factor
        self.longest_s = longest_s
        self.shortest_s = shortest_s

    def seconds(self, took_s: float) -> float:
        return min(max(self.factor * took_s, self.shortest_s), self.longest_s)

    def after(self, took_s: float, requested_s: float = 0.0) -> float:
        """How many seconds to pause now. ``requested_s``: the minimum that another component
        requests."""
        seconds = max(self.seconds(took_s), requested_s)
        PAUSED[self.name] += seconds
        return seconds


# A batch writer, after a statement. Enough waiting items end the pause early.
AFTER_WRITE = Pause("write", 3.0, 0.02)
# A loop whose changes come in bursts, after a tick.
AFTER_TICK = Pause("tick", 2.0, 0.04)
# An agent, between two reports: reporting takes at most a tenth of a CPU, however many kernels
# there are.
AFTER_REPORT = Pause("report", 10.0, 0.1, shortest_s=0.002)
# The event feed, after it has sent changes to the watchers.
AFTER_EVENTS = Pause("events", 10.0, 0.25, shortest_s=0.01)
# A proxy, between two copies of its route table on disk.
AFTER_SAVE = Pause("save", 20.0, 30.0)
# An agent whose reports wait in the manager. The manager requests a pause in proportion to the
# wait.
ON_BACKLOG = Pause("report", 4.0, 0.4)
