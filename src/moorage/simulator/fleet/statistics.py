"""Statistics of a fleet simulation, its progress line and its summary. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from moorage.common.model.status import ObservedState


@dataclass
class FleetStatistics:
    """Counters since the start, except that ``connected`` and ``states`` are current values.
    ``states``: kernels by state. ``ended``: kernels by reason code, "stopped" for those that ended
    only because the manager ordered it. ``faults``: injected faults by kind."""

    agents: int = 0
    connected: int = 0
    created: int = 0
    ready: int = 0  # kernels that reached RUNNING
    reports: int = 0
    states: Counter[ObservedState] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def move(self, before: ObservedState | None, after: ObservedState | None) -> None:
        if before is not None:
            self.states[before] -= 1
        if after is not None:
            self.states[after] += 1

    def as_dict(self) -> dict[str, object]:
        return {
            "agents": self.agents,
            "connected": self.connected,
            "created": self.created,
            "ready": self.ready,
            "reports": self.reports,
            "states": {state.value: count for state, count in sorted(self.states.items()) if count},
            "ended": dict(sorted(self.ended.items())),
            "faults": dict(sorted(self.faults.items())),
        }


class ProgressLines:
    """Progress lines; the rates in each line cover the time since the previous one."""

    def __init__(self, statistics: FleetStatistics, since: float) -> None:
        self._statistics = statistics
        self._started_at = since
        self._last_at = since
        self._created = 0
        self._reports = 0

    def line(self, now: float) -> str:
        """A progress line. ``now``: the clock's ``monotonic`` time in seconds, like ``since``."""
        statistics = self._statistics
        passed = max(now - self._last_at, 1e-9)
        starts = (statistics.created - self._created) / passed
        reports = (statistics.reports - self._reports) / passed
        self._last_at = now
        self._created = statistics.created
        self._reports = statistics.reports
        parts = [
            f"{now - self._started_at:6.0f} s  {statistics.connected}/{statistics.agents} agents",
            f"{starts:.0f} starts/s",
            f"{reports:.0f} reports/s",
            "kernels "
            + (_format({s.value.lower(): n for s, n in statistics.states.items() if n}) or "none"),
        ]
        if statistics.faults:
            parts.append("faults " + _format(statistics.faults))

        return "  ".join(parts)


def summarize(statistics: FleetStatistics, seconds: float) -> str:
    rate = statistics.created / max(seconds, 1e-9)
    ended = sum(statistics.ended.values())
    lines = [
        f"{statistics.agents} agents for {seconds:.1f} s: {statistics.created} kernels created "
        f"({rate:.1f}/s), {statistics.ready} ready, {ended} ended, {statistics.reports} reports",
        "ended: " + (_format(statistics.ended) or "none"),
        "faults: " + (_format(statistics.faults) or "none"),
    ]
    return "\n".join(lines)


def _format(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
