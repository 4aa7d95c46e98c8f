"""Statistics of a scheduler simulation. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from moorage.simulator.scheduler.jobs import SECOND
from moorage.simulator.scheduler.simulation import SimulatedOutcome, SimulationResult

# Lower bound for run times in the slowdown ("bounded slowdown", after Feitelson).
_SLOWDOWN_BOUND = 10 * SECOND


@dataclass(frozen=True, slots=True)
class ScheduleStatistics:
    """Statistics of a schedule. Times are in seconds, and zero if nothing started."""

    # mean share of the capacity in use: over a whole recording, otherwise until the last arrival
    utilization: float
    mean_wait: float
    p99_wait: float
    max_wait: float
    # mean over sessions that need at least the largest agent; None if there are none
    large_wait: float | None
    slowdown: float  # mean of (wait + run) / run, at least 1; runs below 10 s count as 10 s
    # mean number of sessions of the same priority that arrived later and started earlier
    bypasses: float
    max_bypasses: int  # the largest such number for one session
    fairness: float  # Jain's index over the users' run times as shares of the time since arrival
    makespan: float  # from the first arrival until the last session ended
    unstarted: int
    preemptions: int = 0


def summarize(result: SimulationResult) -> ScheduleStatistics:
    """Compute the statistics. In a recording, sessions that have not started have waited until its
    end. In a trace that runs until everything has ended, they request more than the capacity, and
    are counted only as unstarted."""
    outcomes = result.outcomes
    span = result.span
    started = [(o, o.started) for o in outcomes if o.started is not None]

    # Each session, with the time at which its wait ends.
    waited = (
        started
        if span is None
        else [(o, span[1] if o.started is None else o.started) for o in outcomes]
    )
    waits = sorted(until - outcome.arrived for outcome, until in waited)
    large = [
        until - outcome.arrived
        for outcome, until in waited
        if outcome.amount >= result.largest_agent
    ]
    bypasses = _bypasses(waited)
    first_arrival = min((outcome.arrived for outcome in outcomes), default=0)
    last_arrival = max((outcome.arrived for outcome in outcomes), default=0)
    begin, end = (first_arrival, last_arrival) if span is None else span
    last_end = max((at + outcome.runs for outcome, at in started), default=begin)

    return ScheduleStatistics(
        utilization=utilization(result, begin, end),
        mean_wait=_mean(waits) / SECOND,
        p99_wait=percentile(waits, 99) / SECOND,
        max_wait=max(waits, default=0) / SECOND,
        large_wait=_mean(large) / SECOND if large else None,
        slowdown=_mean([_slowdown(at - outcome.arrived, outcome.runs) for outcome, at in started]),
        bypasses=_mean(bypasses),
        max_bypasses=max(bypasses, default=0),
        fairness=jain_index(_user_shares(outcomes, None if span is None else end)),
        makespan=(last_end - begin) / SECOND,
        unstarted=len(outcomes) - len(started),
        preemptions=sum(outcome.preemptions for outcome in outcomes),
    )


def utilization(result: SimulationResult, begin: int, end: int) -> float:
    """Mean share of the capacity in use from ``begin`` to ``end``."""
    if end <= begin or not result.capacity:
        return 0.0

    area = 0
    level = 0
    since = begin
    for at, in_use in result.usage:
        at = min(max(at, begin), end)
        area += level * (at - since)
        since = at
        level = in_use

    area += level * (end - since)
    return area / ((end - begin) * result.capacity)


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that ``percent`` percent of the values do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0


def jain_index(shares: Sequence[float]) -> float:
    """Jain's fairness index. 1 means that all shares are equal, 1/n that one user has
    everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def _slowdown(waited: int, runs: int) -> float:
    return max(1.0, (waited + runs) / max(runs, _SLOWDOWN_BOUND))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _user_shares(outcomes: Sequence[SimulatedOutcome], end: int | None) -> list[float]:
    """For each user, the run time of its sessions as a share of the time since they arrived.
    ``end``: sessions that have not started have waited until then; None means that they do not
    count."""
    ran: dict[str, int] = {}
    present: dict[str, int] = {}
    for outcome in outcomes:
        user = outcome.user
        started = outcome.started
        if started is not None:
            ran[user] = ran.get(user, 0) + outcome.runs
            present[user] = present.get(user, 0) + started - outcome.arrived + outcome.runs
        elif end is not None:
            ran.setdefault(user, 0)
            present[user] = present.get(user, 0) + end - outcome.arrived

    return [ran[user] / present[user] for user in sorted(ran) if present[user]]


def _bypasses(waited: Sequence[tuple[SimulatedOutcome, int]]) -> list[int]:
    """For each session, how many sessions of the same priority arrived after it and started before
    it."""
    counts = []
    later_starts: list[int] = []  # of sessions of the current priority that arrived later
    priority = None
    by_arrival = sorted(waited, key=lambda pair: (pair[0].priority, pair[0].arrived))
    for outcome, started in reversed(by_arrival):
        if outcome.priority != priority:
            later_starts = []
            priority = outcome.priority

        counts.append(bisect_left(later_starts, started))
        insort(later_starts, started)

    return counts
