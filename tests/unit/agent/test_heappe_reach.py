"""Reachability of an engine: when its path is considered gone, when the path is reopened, and when
the job is given up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault
from moorage.agent.runtimes.heappe.interpretation import Facts, interpret
from moorage.agent.runtimes.heappe.reach import (
    DEAD,
    FIRST_PAUSE_S,
    GONE_S,
    LONGEST_PAUSE_S,
    RENEWALS,
    EngineReach,
)
from moorage.agent.runtimes.heappe.wire import JobState as J
from moorage.common.model.status import ObservedState as S

_KEPT_S = 1800.0
NOW = 1_800_000_000.0
WALLTIME = 7200.0
_RUNS = Facts(now=NOW, walltime_s=WALLTIME, state=J.RUNNING, seen_at=NOW - 5, running_at=NOW - 1000)


def reached(at: float = 0.0) -> EngineReach:
    reach = EngineReach()
    reach.answered(at)
    return reach


@pytest.mark.parametrize(
    ("misses", "now", "since"),
    [
        ([], 100, None),
        ([(10, SiteFault.NO_TUNNEL)], 100, None),  # the next one may get through
        (
            [(10, SiteFault.NO_TUNNEL), (10.5, SiteFault.NO_TUNNEL)],
            11,
            None,
        ),  # it has just been reopened
        ([(10, SiteFault.NO_TUNNEL), (14, SiteFault.TUNNEL)], 14, 10),
        ([(10, SiteFault.UNREACHABLE), (14, SiteFault.SSH)], 14, 10),
        ([(10, SiteFault.NOT_RUNNING), (14, SiteFault.NOT_RUNNING)], 14, 10),
        ([(10, SiteFault.UPSTREAM), (14, SiteFault.UPSTREAM)], 14, None),  # the engine's own answer
        ([(10, SiteFault.INVALID), (14, SiteFault.TOO_LARGE)], 14, None),  # the client's fault
    ],
)
def test_a_way_is_gone(
    misses: list[tuple[float, SiteFault]], now: float, since: float | None
) -> None:
    reach = reached()
    loading = EngineReach()
    for at, problem in misses:
        for one in (reach, loading):
            one.missed(at, HeappeFailed(problem, "x"))

    assert reach.gone_since(now) == since
    assert loading.gone_since(now) is None  # it never existed
    reach.answered(now)
    assert reach.gone_since(now + 100) is None


@pytest.mark.parametrize("problem", SiteFault)
def test_what_shows_that_the_engine_is_not_reached(problem: SiteFault) -> None:
    reach = reached()
    reach.missed(10, HeappeFailed(problem, "x"))
    assert (reach.silent_at is not None) is (problem in DEAD | {SiteFault.NOT_RUNNING})


@pytest.mark.parametrize(("gone_s", "most"), [(25, 4), (60, 8), (600, 40)])
@pytest.mark.parametrize("ask_s", [0.05, 0.33, 4])
def test_renewals_are_paced_however_many_ask(gone_s: float, most: int, ask_s: float) -> None:
    reach = reached()
    now = 10.0
    renewed = 0
    while now < 10 + gone_s:
        reach.missed(now, HeappeFailed(SiteFault.NO_TUNNEL, "x"))
        if reach.may_renew(now):
            reach.renewing(now, 1.0)
            renewed += 1

        now += ask_s

    assert 2 < renewed <= most
    reach.answered(now)
    assert reach.may_renew(now)  # a repaired path that breaks again is reopened at once


@examples(150)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=50))
def test_the_pauses_are_bounded(gaps: list[int]) -> None:
    reach = reached()
    now = 0.0
    for gap in gaps:
        now += gap
        reach.missed(now, HeappeFailed(SiteFault.TUNNEL, "x"))
        reach.renewing(now, 1.0)
        assert FIRST_PAUSE_S <= reach.renew_at - now <= LONGEST_PAUSE_S


@pytest.mark.parametrize("timeout_s", [0, 60, _KEPT_S])
def test_a_job_is_given_up_only_after_its_time(timeout_s: float) -> None:
    reach = reached()
    for attempt in range(RENEWALS):
        assert not reach.is_given_up(1000, timeout_s)
        reach.missed(1000 + attempt, HeappeFailed(SiteFault.TUNNEL, "x"))
        reach.renewing(1000 + attempt, 1.0)

    assert not reach.is_given_up(999 + timeout_s, timeout_s)
    assert reach.is_given_up(1000 + timeout_s, timeout_s)
    reach.missed(1001 + timeout_s, HeappeFailed(SiteFault.UNREACHABLE, "x"))

    # the site itself is unreachable, so it cannot report the job's state
    assert not reach.is_given_up(1001 + timeout_s, timeout_s)


@pytest.mark.parametrize(
    ("facts", "state", "kept_s"),
    [
        (_RUNS, S.RUNNING, None),
        (replace(_RUNS, gone_at=NOW - 30), S.RUNNING, _KEPT_S - 30),
        # Not beyond its walltime, of which at most 200 s are left.
        (replace(_RUNS, running_at=NOW - 7000, gone_at=NOW - 30), S.RUNNING, 110),
        # The site reports that the job has ended, and the job cannot be reached, so nothing
        # suggests that it still runs.
        (
            replace(_RUNS, state=J.FAILED, gone_at=NOW - 5, silent_at=NOW - 5, answered_at=NOW - 9),
            S.EXITED,
            None,
        ),
        # There is no information, so the reported state stays.
        (replace(_RUNS, seen_at=NOW - 500, gone_at=NOW - 400), S.UNKNOWN, None),
    ],
)
def test_a_job_out_of_reach_is_kept_while_its_walltime_lasts(
    facts: Facts, state: S, kept_s: float | None
) -> None:
    seen = interpret(replace(facts, gone_why="no tunnel"), _KEPT_S).observation
    assert seen.state is state
    assert ("no tunnel" in seen.unreachable) is (kept_s is not None)
    assert seen.kept_until == (0.0 if kept_s is None else NOW + kept_s)


def test_it_takes_a_while_until_a_way_is_gone() -> None:
    """Reopening a tunnel for a request takes about a second."""
    assert GONE_S > 1
