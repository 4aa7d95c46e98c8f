"""What a rehearsal tells of a policy, in numbers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from moorage.simulator.scheduler.simulation import Outcome, Played
from moorage.simulator.scheduler.traces import SECOND, Job

# Slowdown of the shortest jobs tells nothing: they are counted as running this long (Feitelson's bound).
_SHORTEST = 10 * SECOND


@dataclass(frozen=True, slots=True)
class Figures:
    """Times in seconds; zeros where nothing started."""

    utilisation: float  # share of all GPUs in use until the last job arrived
    mean_wait: float
    p99_wait: float
    max_wait: float
    large_wait: float | None  # mean of those that need at least a whole agent; None: there are none
    slowdown: float  # mean of (wait + run) / run, at least 1, the shortest runs counted as 10 s
    bypasses: float  # mean: how often somebody of its priority came later and started earlier
    most_bypassed: int  # the same of the one that it happened to most
    fairness: float  # Jain's index over users: of the time that their jobs were there, how much they ran
    makespan: float  # from the first arrival to the last end
    unstarted: int  # they ask for more than there is


def figures(played: Played, span: tuple[int, int] | None = None) -> Figures:
    """``span``: only what was in it is known. Use is counted from its begin to its end, and who has not
    started by its end has waited until then."""
    done = [(o.job, o.started) for o in played.outcomes if o.started is not None]
    waited = [(job, started - job.at) for job, started in done]
    if span is not None:
        waited += [(o.job, span[1] - o.job.at) for o in played.outcomes if o.started is None]
    waits = sorted(wait for _, wait in waited)
    large = [wait for job, wait in waited if job.gpus >= played.floor.gpus]
    slow = [_slowdown(started - job.at, job.runs) for job, started in done]
    overtaken = _bypasses([(job, job.at + wait) for job, wait in waited])
    begin = min((o.job.at for o in played.outcomes), default=0)
    until = max((o.job.at for o in played.outcomes), default=0)
    if span is not None:
        begin, until = span
    ends = max((started + job.runs for job, started in done), default=begin)
    return Figures(
        utilisation=in_use(played, begin, until),
        mean_wait=_mean(waits) / SECOND,
        p99_wait=percentile(waits, 99) / SECOND,
        max_wait=max(waits, default=0) / SECOND,
        large_wait=_mean(large) / SECOND if large else None,
        slowdown=_mean(slow),
        bypasses=_mean(overtaken),
        most_bypassed=max(overtaken, default=0),
        fairness=jain(_shares(played.outcomes, None if span is None else until)),
        makespan=(ends - begin) / SECOND,
        unstarted=len(played.outcomes) - len(done),
    )


def in_use(played: Played, begin: int, until: int) -> float:
    """The share of GPU time that was used between the two."""
    if until <= begin or not played.floor.total:
        return 0.0
    used, level, since = 0, 0, begin
    for at, busy in played.busy:
        used += level * (min(max(at, begin), until) - since)
        since, level = min(max(at, begin), until), busy
    used += level * (until - since)
    return used / ((until - begin) * played.floor.total)


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest that so many of a hundred do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0


def jain(shares: Sequence[float]) -> float:
    """1: all have the same; 1/n: one has all."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def _slowdown(waited: int, runs: int) -> float:
    return max(1.0, (waited + runs) / max(runs, _SHORTEST))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _shares(outcomes: Sequence[Outcome], until: int | None) -> list[float]:
    """Of each user: how much of the time that its jobs were there they ran. ``until``: those that had not
    started by then were there, and did not run; None: they do not count."""
    ran: dict[str, int] = {}
    there: dict[str, int] = {}
    for outcome in outcomes:
        job, started = outcome.job, outcome.started
        if started is not None:
            ran[job.user] = ran.get(job.user, 0) + job.runs
            there[job.user] = there.get(job.user, 0) + started - job.at + job.runs
        elif until is not None:
            ran.setdefault(job.user, 0)
            there[job.user] = there.get(job.user, 0) + until - job.at
    return [ran[user] / there[user] for user in sorted(ran) if there[user]]


def _bypasses(done: Sequence[tuple[Job, int]]) -> list[int]:
    """Of each: how many came after it and started before it."""
    counts = []
    starts: list[int] = []  # of those that came later
    before = 0
    ordered = sorted(done, key=lambda pair: (pair[0].priority, pair[0].at))
    while ordered:
        job, started = ordered.pop()
        if job.priority != before:
            starts, before = [], job.priority
        counts.append(bisect_left(starts, started))
        insort(starts, started)
    return counts
