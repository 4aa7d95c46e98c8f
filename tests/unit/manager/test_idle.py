"""Idle criteria: the time left under each, what users may choose, and that missing usage data never
ends a session."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.model.idle import IdleChoice, IdlePolicy
from moorage.manager.workloads.idle import (
    IdleSettings,
    IdleState,
    IdleStep,
    Judgment,
    Look,
    Observations,
    ends_in,
    find_problem,
    judge,
    needed_minutes,
    percent_used,
    remaining,
    settings_of,
)

TRAFFIC = IdlePolicy.model_validate({"traffic": {"default_s": 600, "min_s": 60, "max_s": 3600}})


def settings(
    choice: dict[str, Any] | None = None, project: str = "vision", **policy: Any
) -> IdleSettings:
    made = IdlePolicy.model_validate(policy) if policy else None
    return settings_of(made, project, None if choice is None else IdleChoice.model_validate(choice))


@pytest.mark.parametrize(
    ("now", "traffic_at", "timeout", "grace", "left"),
    [
        (20, 0, 30, 0, 10),
        (20, 0, 30, 30, 40),
        (20, 30, 30, 20, 40),
        (50, 0, 10, 10, -30),
        (5, 0, 10, 0, 5),
        (50, 0, 10, 0, -40),
        (5, 0, 10, 30, 35),
        (50, 0, 10, 30, -10),
    ],
)
def test_time_without_traffic(
    now: float, traffic_at: float, timeout: float, grace: float, left: float
) -> None:
    seen = Observations(traffic_at)
    what = IdleSettings(traffic_s=timeout, grace_s=grace)
    assert remaining(seen, what, now) == {"traffic": left}


@pytest.mark.parametrize(("now", "left"), [(10, 20), (30, 0), (50, -20)])
def test_lifetime_counts_from_the_start(now: float, left: float) -> None:
    assert remaining(Observations(9.0), IdleSettings(lifetime_s=30), now) == {"lifetime": left}


@pytest.mark.parametrize(
    ("now", "used", "busy_if", "left"),
    [
        (10, {"cpu": 99.0, "memory": 99.0}, "any", 150),  # grace 100, window 60, so no decision yet
        (170, {"cpu": 5.0, "memory": 6.0}, "any", 0),
        # the mean needs half of the window to fall to 10 %
        (170, {"cpu": 20.0, "memory": 6.0}, "any", 30),
        (170, {"cpu": 20.0, "memory": 6.0}, "all", 0),
        (170, {"memory": 20.0}, "all", 30),  # unmeasured usage is ignored
        (170, {"cpu": 0.0, "memory": 50.0}, "any", 48),
        (170, {"cpu": 10.0}, "any", 1),  # at the threshold, so in use
        (170, {"memory": 10.0}, "all", 1),
        (170, {"cpu": 0.0, "memory": 0.0}, "any", 0),
        (170, {}, "any", None),
        (170, {"cpu": float("nan")}, "any", None),
    ],
)
def test_utilization(now: float, used: dict[str, float], busy_if: str, left: float | None) -> None:
    rule = {"window_s": 60, "cpu": 10, "memory": 10, "busy_if": busy_if}
    what = settings(utilization=rule, grace_s=100)
    assert remaining(Observations(0, used), what, now) == {"utilization": left}


@pytest.mark.parametrize(
    ("left", "end_when", "expected"),
    [
        ({"traffic": 5.0, "lifetime": 9.0}, "any", ("traffic", 5.0)),
        ({"traffic": 5.0, "lifetime": 9.0}, "all", ("lifetime", 9.0)),
        ({"traffic": 5.0, "utilization": None}, "any", ("traffic", 5.0)),
        ({"traffic": 5.0, "utilization": None}, "all", None),
        ({"utilization": None}, "any", None),
        ({}, "any", None),
    ],
)
def test_any_or_all_criteria_end_a_session(
    left: dict[str, float | None], end_when: str, expected: tuple[str, float] | None
) -> None:
    assert ends_in(left, IdleSettings(end_when=end_when)) == expected


@pytest.mark.parametrize(
    ("choice", "problem", "effective"),
    [
        (None, None, 600),
        ({"traffic_s": 120}, None, 120),
        ({"traffic_s": 30}, "traffic_s = 30, but the resource group allows 60 to 3600", 60),
        ({"traffic_s": 7200}, "traffic_s = 7200, but", 3600),
        ({"traffic_s": "never"}, "never, but the resource group allows at most 3600", 3600),
    ],
)
def test_users_choose_within_bounds(choice: Any, problem: str | None, effective: float) -> None:
    chosen = None if choice is None else IdleChoice.model_validate(choice)
    found = find_problem(TRAFFIC, "vision", chosen)
    assert found is None if problem is None else problem in (found or "")
    assert settings_of(TRAFFIC, "vision", chosen).traffic_s == effective


def test_a_project_has_rules_of_its_own() -> None:
    policy = {"traffic": {"default_s": 600}, "projects": {"speech": {"lifetime": {"max_s": 60}}}}
    assert settings(**policy).criteria == ("traffic",)
    assert settings(project="speech", **policy).criteria == ("lifetime",)
    assert settings().criteria == ()
    assert settings({"traffic_s": 5, "utilization": {"gpu": 5}}).criteria == (
        "traffic",
        "utilization",
    )


def test_use_is_a_share_of_what_was_allocated() -> None:
    slots = {"cpu": 2000, "mem": 1000, "cuda.device": 2}
    assert percent_used(slots, 500, 100, 1000) == {"cpu": 25, "memory": 10, "gpu": 50}
    assert percent_used({"cpu": 1000, "cuda.shares": 500}, 0, 5, 250) == {"cpu": 0, "gpu": 50}
    assert percent_used(slots, 0, 0, None) == {"cpu": 0, "memory": 0}
    assert (needed_minutes(60), needed_minutes(600), needed_minutes(3600)) == (1, 9, 54)


def run(looks: list[Look], what: IdleSettings, state: IdleState | None = None) -> list[Judgment]:
    made = []
    state = state or IdleState()
    for look in looks:
        made.append(judge(state, look, what))
        state = made[-1].state
    return made


def test_a_session_is_warned_then_ended_and_traffic_takes_the_warning_back() -> None:
    what = IdleSettings(traffic_s=30, warning_s=10)
    quiet = run([Look(10)] * 4, what)
    assert [one.step for one in quiet] == [
        IdleStep.NONE,
        IdleStep.WARN,
        IdleStep.NONE,
        IdleStep.END,
    ] or [one.step for one in quiet] == [IdleStep.NONE, IdleStep.WARN, IdleStep.END, IdleStep.END]
    used = run([Look(10), Look(10), Look(5, sightings=1), Look(10, sightings=1)], what)
    assert [one.step for one in used] == [
        IdleStep.NONE,
        IdleStep.WARN,
        IdleStep.RESUME,
        IdleStep.NONE,
    ]
    extended = replace(quiet[1].state, extended_s=100.0, extensions=1)
    assert run([Look(10)], what, extended)[0].step is IdleStep.RESUME


def test_a_session_that_is_found_idle_is_warned_before_it_ends() -> None:
    what = IdleSettings(lifetime_s=30, warning_s=10)
    steps = [one.step for one in run([Look(100), Look(1), Look(8), Look(1)], what)]
    assert steps == [IdleStep.WARN, IdleStep.NONE, IdleStep.NONE, IdleStep.END]


def test_time_in_which_no_proxy_told_of_traffic_does_not_count() -> None:
    what = IdleSettings(traffic_s=30, warning_s=0)
    untold = run([Look(10), *[Look(10, traffic_known=False)] * 9, Look(10)], what)
    assert [one.step for one in untold] == [IdleStep.NONE] * 11
    assert untold[-1].remaining == {"traffic": 10}


LOOKS = st.lists(
    st.builds(
        Look,
        st.floats(0, 15),
        st.integers(0, 3),
        st.booleans(),
        st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.floats(0, 200)),
    ),
    max_size=40,
)
SETTINGS = st.builds(
    IdleSettings,
    st.none() | st.floats(1, 60),
    st.none() | st.floats(1, 200),
    grace_s=st.floats(0, 50),
    warning_s=st.floats(0, 30),
    end_when=st.sampled_from(["any", "all"]),
)


@given(LOOKS, SETTINGS)
@examples(60)
def test_only_observed_and_warned_idleness_ends_a_session(
    looks: list[Look], what: IdleSettings
) -> None:
    warned_at: float | None = None
    state = IdleState()
    quiet_s = 0.0
    sightings = 0
    for look in looks:
        made = judge(state, look, what)
        now = made.state.observed_s
        quiet_s = (
            0.0 if look.sightings != sightings else quiet_s + look.elapsed_s * look.traffic_known
        )
        sightings = look.sightings

        if made.step is IdleStep.WARN:
            warned_at = now
        elif made.step is IdleStep.RESUME:
            warned_at = None

        if made.step is IdleStep.END:
            assert look.elapsed_s > 0
            assert warned_at is not None
            assert now - warned_at >= what.warning_s - 1e-6

            if made.criterion == "traffic" or (
                what.end_when == "all" and what.traffic_s is not None
            ):
                assert what.traffic_s is not None
                assert look.traffic_known
                assert quiet_s >= what.traffic_s - 1e-6

            if made.criterion == "lifetime":
                assert what.lifetime_s is not None
                assert now >= max(what.lifetime_s, what.grace_s) - 1e-6

        state = made.state
