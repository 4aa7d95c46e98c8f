"""What a simulation has done so far, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from moorage.common.model.status import ObservedState


@dataclass
class Tally:
    """``states``: kernels there now, by state. ``ended``: by reason code, "stopped" where the manager's wish
    was the only one. ``faults``: injected so far, by kind."""

    agents: int = 0
    attached: int = 0
    created: int = 0  # kernels begun
    ready: int = 0  # kernels that came to RUNNING
    reports: int = 0
    states: Counter[ObservedState] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def moved(self, before: ObservedState | None, after: ObservedState | None) -> None:
        if before is not None:
            self.states[before] -= 1
        if after is not None:
            self.states[after] += 1

    def as_dict(self) -> dict[str, object]:
        return {
            "agents": self.agents,
            "attached": self.attached,
            "created": self.created,
            "ready": self.ready,
            "reports": self.reports,
            "states": {state.value: count for state, count in sorted(self.states.items()) if count},
            "ended": dict(sorted(self.ended.items())),
            "faults": dict(sorted(self.faults.items())),
        }


class Progress:
    """One line now and then: ``line`` tells what came since the line before."""

    def __init__(self, tally: Tally, since: float) -> None:
        self._tally, self._begun, self._last_at = tally, since, since
        self._created = self._reports = 0

    def line(self, now: float) -> str:
        """``now`` as of the clock's ``monotonic``."""
        tally, passed = self._tally, max(now - self._last_at, 1e-9)
        starts, reports = (tally.created - self._created) / passed, (tally.reports - self._reports) / passed
        self._last_at, self._created, self._reports = now, tally.created, tally.reports
        parts = [
            f"{now - self._begun:6.0f} s  {tally.attached}/{tally.agents} agents",
            f"{starts:.0f} starts/s",
            f"{reports:.0f} reports/s",
            "kernels " + (_counts({s.value.lower(): n for s, n in tally.states.items() if n}) or "none"),
        ]
        if tally.faults:
            parts.append("faults " + _counts(tally.faults))
        return "  ".join(parts)


def summary(tally: Tally, seconds: float) -> str:
    rate = tally.created / max(seconds, 1e-9)
    lines = [
        f"{tally.agents} agents for {seconds:.1f} s: {tally.created} kernels begun ({rate:.1f}/s), "
        f"{tally.ready} became ready, {sum(tally.ended.values())} ended, {tally.reports} reports",
        "ended: " + (_counts(tally.ended) or "none"),
        "faults: " + (_counts(tally.faults) or "none"),
    ]
    return "\n".join(lines)


def _counts(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
