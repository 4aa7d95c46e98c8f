"""Scheduler simulation: small traces worked out by hand, and properties that hold for all
traces."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.model.errors import InvalidInput
from moorage.simulator.scheduler import (
    POLICIES,
    SHAPES,
    Fleet,
    SimulationResult,
    generate_jobs,
    read_jobs,
    simulate,
    summarize,
)
from moorage.simulator.scheduler.jobs import HOUR, SECOND, TraceJob
from moorage.simulator.scheduler.statistics import jain_index, percentile
from moorage.simulator.scheduler.trace import trace_of_jobs


def job(
    name: str, at_s: int, gpus: int, run_s: int, *, user: str = "ann", **options: int | None
) -> TraceJob:
    fields = {"limit": run_s * SECOND} | options
    return TraceJob(name, at_s * SECOND, gpus=gpus, runs=run_s * SECOND, user=user, **fields)  # type: ignore[arg-type]


def run(jobs: Sequence[TraceJob], fleet: Fleet, policy: str) -> SimulationResult:
    return simulate(trace_of_jobs(jobs, fleet), POLICIES[policy])


def starts(result: SimulationResult) -> dict[str, int | None]:
    """Start times by session, in seconds."""
    return {o.session: None if o.started is None else o.started // SECOND for o in result.outcomes}


# Two GPUs. a has one of them until 100, so b, which needs both, waits until then.
FOUR = (
    job("a", 0, 1, 100),
    job("b", 1, 2, 50),
    job("c", 2, 1, 40, user="bob"),
    job("d", 3, 1, 200, user="bob"),
)
TWO_GPUS = Fleet(1, 2)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("strict", {"a": 0, "b": 100, "c": 150, "d": 150}),
        # c ends at 42, before b can start; d would not.
        ("backfill", {"a": 0, "b": 100, "c": 2, "d": 150}),
        # Nothing is reserved for b, so d starts when c has ended, and b waits for d.
        ("greedy", {"a": 0, "b": 242, "c": 2, "d": 42}),
    ],
)
def test_head_that_does_not_fit_under_each_policy(policy: str, expected: dict[str, int]) -> None:
    assert starts(run(FOUR, TWO_GPUS, policy)) == expected


def test_statistics_worked_out_by_hand() -> None:
    strict = summarize(run(FOUR, TWO_GPUS, "strict"))
    assert strict.utilization == pytest.approx(0.5)  # one of two GPUs, until d arrives
    assert strict.mean_wait == pytest.approx((0 + 99 + 148 + 147) / 4)
    assert strict.p99_wait == strict.max_wait == 148
    assert strict.large_wait == 99
    assert strict.slowdown == pytest.approx((1 + 149 / 50 + 188 / 40 + 347 / 200) / 4)
    assert (strict.bypasses, strict.max_bypasses, strict.makespan) == (0, 0, 350)
    ann = 150 / (150 + 99)
    bob = 240 / (240 + 295)
    assert strict.fairness == pytest.approx((ann + bob) ** 2 / (2 * (ann**2 + bob**2)))

    greedy = summarize(run(FOUR, TWO_GPUS, "greedy"))
    assert (greedy.bypasses, greedy.max_bypasses, greedy.makespan) == (0.5, 2, 292)


def test_drf_prefers_the_user_with_less() -> None:
    many = tuple(job(f"a{n}", n, 2, 10) for n in range(5))
    jobs = (*many, job("b", 5, 2, 10, user="bob"))
    fifo, drf = (run(jobs, Fleet(2, 2), name) for name in ("backfill", "drf"))
    # Two jobs run at a time. At 10 the first one ends; ann has the other agent, and bob has
    # nothing.
    assert (starts(fifo)["b"], starts(drf)["b"]) == (21, 10)


def test_job_larger_than_an_agent_takes_whole_agents() -> None:
    jobs = (job("a", 0, 1, 10), job("wide", 1, 5, 20), job("never", 2, 9, 1))
    result = run(jobs, Fleet(4, 2), "backfill")
    assert starts(result) == {"a": 0, "wide": 1, "never": None}
    assert (SECOND, 6000) in result.usage
    assert summarize(result).unstarted == 1


def test_job_without_a_limit_is_not_backfilled_past_a_reservation() -> None:
    jobs = (job("a", 0, 1, 100), job("b", 1, 2, 50), job("c", 2, 1, 40, limit=None))
    assert starts(run(jobs, TWO_GPUS, "backfill"))["c"] == 150


@st.composite
def traces(draw: st.DrawFn) -> tuple[TraceJob, ...]:
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 50), st.sampled_from([1, 2, 3, 4, 6, 8]), st.integers(1, 60)),
            min_size=1,
            max_size=25,
        )
    )
    return tuple(
        job(f"j{n:02}", *row) for n, row in enumerate(sorted(rows, key=lambda row: row[0]))
    )


@examples(150)
@given(traces(), st.sampled_from(["backfill", "skip", "greedy", "lifo", "drf"]))
def test_capacity_is_never_exceeded_and_every_job_runs(
    jobs: tuple[TraceJob, ...], policy: str
) -> None:
    fleet = Fleet(2, 4)
    result = run(jobs, fleet, policy)
    assert all(outcome.started is not None for outcome in result.outcomes)
    assert all(0 <= in_use <= result.capacity for _, in_use in result.usage)
    assert result.usage[-1][1] == 0
    for outcome in result.outcomes:
        assert outcome.started is not None
        assert outcome.started >= outcome.arrived


@examples(300)
@given(traces())
def test_backfill_starts_the_first_blocked_job_no_later_than_strict(
    jobs: tuple[TraceJob, ...],
) -> None:
    fleet = Fleet(2, 4)
    strict, backfill = (starts(run(jobs, fleet, name)) for name in ("strict", "backfill"))
    head = next((j for j in jobs if strict[j.name] != j.at // SECOND), None)
    if head is not None:
        assert backfill[head.name] <= strict[head.name]  # type: ignore[operator]


@examples(100)
@given(traces())
def test_strict_bypasses_nothing(jobs: tuple[TraceJob, ...]) -> None:
    assert summarize(run(jobs, Fleet(2, 4), "strict")).max_bypasses == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_same_seed_gives_same_statistics(shape: str) -> None:
    def once(seed: int) -> tuple[object, object]:
        jobs = generate_jobs(shape, 120, 32, 0.9, estimates="padded", rng=Random(seed))
        return jobs, summarize(run(jobs, Fleet(4, 8), "backfill"))

    assert once(1) == once(1)
    assert once(1) != once(2)


@pytest.mark.parametrize("shape", SHAPES)
def test_synthetic_trace_has_the_requested_shape(shape: str) -> None:
    kind = SHAPES[shape]
    jobs = generate_jobs(shape, 2000, 128, 0.8, estimates="exact", rng=Random(3))
    assert len(jobs) == 2000
    assert [j.at for j in jobs] == sorted(j.at for j in jobs)
    assert {j.gpus for j in jobs} == {size for size, _ in kind.sizes}
    assert all(kind.runs[0] <= j.runs <= kind.runs[1] and j.limit == j.runs for j in jobs)

    # Log-uniform: half of the run times are below the geometric mean.
    geometric_mean = (kind.runs[0] * kind.runs[1]) ** 0.5
    assert sum(j.runs < geometric_mean for j in jobs) == pytest.approx(1000, abs=100)
    span = max(j.at for j in jobs) - min(j.at for j in jobs)
    assert sum(j.gpus * j.runs for j in jobs) / (span * 128) == pytest.approx(0.8, rel=0.05)
    assert sum(j.user == "heavy" for j in jobs) == pytest.approx(20 * kind.heavy, abs=100)


def test_padded_limits_are_never_too_short() -> None:
    jobs = generate_jobs("mixed", 200, 128, 0.9, estimates="padded", rng=Random(0))
    assert all(j.limit is not None and j.runs <= j.limit <= 4 * j.runs + 1 for j in jobs)
    assert all(
        j.limit is None
        for j in generate_jobs("mixed", 50, 128, 0.9, estimates="none", rng=Random(0))
    )


def test_file_of_jobs_is_read_in_the_order_of_arrival() -> None:
    lines = [
        '{"at_s": 5, "gpus": 2, "run_s": 60, "user": "ann", "limit_s": 30, "priority": 20}',
        "",
    ]
    jobs = read_jobs([*lines, '{"at_s": 0.5, "gpus": 1, "run_s": 3600}'])
    assert [(j.at, j.gpus, j.runs, j.limit, j.priority) for j in jobs] == [
        (SECOND // 2, 1, HOUR, None, 10),
        (5 * SECOND, 2, 30 * SECOND, 30 * SECOND, 20),  # stopped at its limit
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"at_s": 0, "gpus": 0, "run_s": 1}', ("line 2", "gpus", "greater than or equal to 1")),
        ('{"at_s": -1, "gpus": 1, "run_s": 1}', ("line 2", "at_s")),
        ('{"at_s": 0, "gpus": 1}', ("line 2", "run_s")),
        ('{"at_s": 0, "gpus": 1, "run_s": 1, "gpu": 2}', ("line 2", "gpu")),
        ("nonsense", ("line 2", "the line")),
    ],
)
def test_malformed_line_is_named(line: str, expected: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_jobs(['{"at_s": 0, "gpus": 1, "run_s": 1}', line])
    assert all(part in str(caught.value) for part in expected)


def test_unknown_names_are_refused_with_alternatives() -> None:
    with pytest.raises(InvalidInput, match="nosuch") as caught:
        generate_jobs("nosuch", 1, 1, 1.0, estimates="exact", rng=Random(0))
    assert "bursty" in str(caught.value.next_step)
    with pytest.raises(InvalidInput, match="rough"):
        generate_jobs("mixed", 1, 1, 1.0, estimates="rough", rng=Random(0))
    with pytest.raises(InvalidInput, match="trace is empty"):
        read_jobs([""])


def test_percentiles_and_fairness() -> None:
    assert percentile(list(range(1, 101)), 99) == 99
    assert percentile([7], 99) == 7
    assert percentile([], 99) == 0
    assert jain_index([1.0, 1.0, 1.0]) == pytest.approx(1)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
