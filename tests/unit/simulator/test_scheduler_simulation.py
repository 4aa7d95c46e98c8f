"""Policies tried in virtual time: small traces worked out by hand, and what must hold of any."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.common.model.errors import InvalidInput
from moorage.simulator.scheduler import POLICIES, SHAPES, Floor, Played, figures, generate, play, read_trace
from moorage.simulator.scheduler.statistics import jain, percentile
from moorage.simulator.scheduler.traces import HOUR, SECOND, Job


def job(name: str, at_s: int, gpus: int, run_s: int, user: str = "ann", **more: int | None) -> Job:
    given = {"limit": run_s * SECOND} | more
    return Job(name, at_s * SECOND, gpus, run_s * SECOND, user, **given)  # type: ignore[arg-type]


def starts(played: Played) -> dict[str, int | None]:
    """In seconds."""
    return {o.job.name: None if o.started is None else o.started // SECOND for o in played.outcomes}


# Two GPUs. a has one of them until 100, so b, which needs both, waits until then.
FOUR = (
    job("a", 0, 1, 100),
    job("b", 1, 2, 50),
    job("c", 2, 1, 40, user="bob"),
    job("d", 3, 1, 200, user="bob"),
)
TWO_GPUS = Floor(1, 2)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("strict", {"a": 0, "b": 100, "c": 150, "d": 150}),
        # c has ended at 42, before b can start; d would not have.
        ("backfill", {"a": 0, "b": 100, "c": 2, "d": 150}),
        # Nobody keeps room for b: d goes when c has ended, and b waits for d.
        ("greedy", {"a": 0, "b": 242, "c": 2, "d": 42}),
    ],
)
def test_what_becomes_of_a_head_that_does_not_fit(policy: str, expected: dict[str, int]) -> None:
    assert starts(play(FOUR, TWO_GPUS, POLICIES[policy])) == expected


def test_the_figures_of_a_trace_worked_out_by_hand() -> None:
    strict = figures(play(FOUR, TWO_GPUS, POLICIES["strict"]))
    assert strict.utilisation == pytest.approx(0.5)  # one of two GPUs until d arrives
    assert strict.mean_wait == pytest.approx((0 + 99 + 148 + 147) / 4)
    assert strict.p99_wait == strict.max_wait == 148
    assert strict.large_wait == 99
    assert strict.slowdown == pytest.approx((1 + 149 / 50 + 188 / 40 + 347 / 200) / 4)
    assert (strict.bypasses, strict.most_bypassed, strict.makespan) == (0, 0, 350)
    ann, bob = 150 / (150 + 99), 240 / (240 + 295)
    assert strict.fairness == pytest.approx((ann + bob) ** 2 / (2 * (ann**2 + bob**2)))

    greedy = figures(play(FOUR, TWO_GPUS, POLICIES["greedy"]))
    assert (greedy.bypasses, greedy.most_bypassed, greedy.makespan) == (0.5, 2, 292)


def test_who_is_one_user_of_many_goes_behind_the_others_with_drf() -> None:
    many = tuple(job(f"a{n}", n, 2, 10) for n in range(5))
    jobs = (*many, job("b", 5, 2, 10, user="bob"))
    fifo, drf = (play(jobs, Floor(2, 2), POLICIES[name]) for name in ("backfill", "drf"))
    # Two run at a time. At 10 the first ends; ann has the other agent, bob nothing.
    assert (starts(fifo)["b"], starts(drf)["b"]) == (21, 10)


def test_a_job_larger_than_an_agent_takes_several_whole() -> None:
    jobs = (job("a", 0, 1, 10), job("wide", 1, 5, 20), job("never", 2, 9, 1))
    played = play(jobs, Floor(4, 2), POLICIES["backfill"])
    assert starts(played) == {"a": 0, "wide": 1, "never": None}
    assert (SECOND, 6) in played.busy
    assert figures(played).unstarted == 1


def test_who_says_nothing_of_its_run_time_is_not_let_past_a_reservation() -> None:
    jobs = (job("a", 0, 1, 100), job("b", 1, 2, 50), job("c", 2, 1, 40, limit=None))
    assert starts(play(jobs, TWO_GPUS, POLICIES["backfill"]))["c"] == 150


@st.composite
def traces(draw: st.DrawFn) -> tuple[Job, ...]:
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 50), st.sampled_from([1, 2, 3, 4, 6, 8]), st.integers(1, 60)),
            min_size=1,
            max_size=25,
        )
    )
    return tuple(job(f"j{n:02}", *row) for n, row in enumerate(sorted(rows, key=lambda row: row[0])))


@settings(deadline=None, max_examples=150)
@given(traces(), st.sampled_from(["backfill", "skip", "greedy", "lifo", "drf"]))
def test_never_more_than_there_is_and_everybody_runs(jobs: tuple[Job, ...], policy: str) -> None:
    floor = Floor(2, 4)
    played = play(jobs, floor, POLICIES[policy])
    assert all(outcome.started is not None for outcome in played.outcomes)
    assert all(0 <= busy <= floor.total for _, busy in played.busy)
    assert played.busy[-1][1] == 0
    for outcome in played.outcomes:
        assert outcome.started is not None
        assert outcome.started >= outcome.job.at


@settings(deadline=None, max_examples=300)
@given(traces())
def test_backfill_starts_the_first_that_is_blocked_no_later_than_strict(jobs: tuple[Job, ...]) -> None:
    floor = Floor(2, 4)
    strict, backfill = (starts(play(jobs, floor, POLICIES[name])) for name in ("strict", "backfill"))
    head = next((j for j in jobs if strict[j.name] != j.at // SECOND), None)
    if head is not None:
        assert backfill[head.name] <= strict[head.name]  # type: ignore[operator]


@settings(deadline=None, max_examples=100)
@given(traces())
def test_strict_overtakes_nobody(jobs: tuple[Job, ...]) -> None:
    assert figures(play(jobs, Floor(2, 4), POLICIES["strict"])).most_bypassed == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_seed_gives_the_same_figures(shape: str) -> None:
    def once(seed: int) -> tuple[object, object]:
        jobs = generate(shape, 120, 32, 0.9, "padded", Random(seed))
        return jobs, figures(play(jobs, Floor(4, 8), POLICIES["backfill"]))

    assert once(1) == once(1)
    assert once(1) != once(2)


@pytest.mark.parametrize("shape", SHAPES)
def test_made_up_work_has_its_shape(shape: str) -> None:
    kind = SHAPES[shape]
    jobs = generate(shape, 2000, 128, 0.8, "exact", Random(3))
    assert len(jobs) == 2000
    assert [j.at for j in jobs] == sorted(j.at for j in jobs)
    assert {j.gpus for j in jobs} == {size for size, _ in kind.sizes}
    assert all(kind.runs[0] <= j.runs <= kind.runs[1] and j.limit == j.runs for j in jobs)
    # As many in each of the doublings between the shortest and the longest: log-uniform.
    middle = (kind.runs[0] * kind.runs[1]) ** 0.5
    assert sum(j.runs < middle for j in jobs) == pytest.approx(1000, abs=100)
    span = max(j.at for j in jobs) - min(j.at for j in jobs)
    assert sum(j.gpus * j.runs for j in jobs) / (span * 128) == pytest.approx(0.8, rel=0.05)
    assert sum(j.user == "heavy" for j in jobs) == pytest.approx(20 * kind.heavy, abs=100)


def test_padded_estimates_are_never_too_short() -> None:
    jobs = generate("mixed", 200, 128, 0.9, "padded", Random(0))
    assert all(j.limit is not None and j.runs <= j.limit <= 4 * j.runs + 1 for j in jobs)
    assert all(j.limit is None for j in generate("mixed", 50, 128, 0.9, "none", Random(0)))


def test_a_recorded_trace_is_read_in_the_order_of_arrival() -> None:
    lines = ['{"at_s": 5, "gpus": 2, "run_s": 60, "user": "ann", "limit_s": 30, "priority": 20}', ""]
    found = read_trace([*lines, '{"at_s": 0.5, "gpus": 1, "run_s": 3600}'])
    assert [(j.at, j.gpus, j.runs, j.limit, j.priority) for j in found] == [
        (SECOND // 2, 1, HOUR, None, 10),
        (5 * SECOND, 2, 30 * SECOND, 30 * SECOND, 20),  # stopped at its limit
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"at_s": 0, "gpus": 0, "run_s": 1}', ("line 2", "gpus", "greater than or equal to 1")),
        ('{"at_s": -1, "gpus": 1, "run_s": 1}', ("line 2", "at_s")),
        ('{"at_s": 0, "gpus": 1}', ("line 2", "run_s")),
        ('{"at_s": 0, "gpus": 1, "run_s": 1, "gpu": 2}', ("line 2", "gpu")),
        ("nonsense", ("line 2", "the line")),
    ],
)
def test_a_line_that_is_wrong_is_named(line: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_trace(['{"at_s": 0, "gpus": 1, "run_s": 1}', line])
    assert all(word in str(caught.value) for word in words)


def test_names_that_are_not_known_are_told_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match="nosuch") as caught:
        generate("nosuch", 1, 1, 1.0, "exact", Random(0))
    assert "bursty" in str(caught.value.next_step)
    with pytest.raises(InvalidInput, match="rough"):
        generate("mixed", 1, 1, 1.0, "rough", Random(0))
    with pytest.raises(InvalidInput, match="no line"):
        read_trace([""])


def test_percentiles_and_fairness() -> None:
    assert percentile(list(range(1, 101)), 99) == 99
    assert percentile([7], 99) == 7
    assert percentile([], 99) == 0
    assert jain([1.0, 1.0, 1.0]) == pytest.approx(1)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
