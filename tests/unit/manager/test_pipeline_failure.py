"""The first failure of a pipeline, and the steps that were skipped because of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.pipelines import After, StepState
from moorage.common.views.pipelines import StepView
from moorage.manager.workloads.pipeline_failure import first_failure

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def step(name: str, state: str, at: float | None, *after: After, **more: Any) -> StepView:
    ended = None if at is None else NOW + timedelta(seconds=at)
    fields = {"name": name, "state": state, "ended_at": ended, "after": list(after)}
    return StepView.model_validate({"run": 1, "session_id": "", "session": ""} | fields | more)


def after(name: str, on: Any = "success") -> After:
    return After(step=name, on=on)


def test_earliest_end_comes_first_and_only_its_consequences_are_named() -> None:
    steps = [
        step("load", "succeeded", 1),
        step("late", "failed", 9),
        step("early", "failed", 5, after("load")),
        step("alarm", "succeeded", 7, after("early", "failure")),
        step("join", "skipped", 6, after("early"), after("load")),
        step("publish", "skipped", 6, after("join")),
        step("after-late", "skipped", 9, after("late")),
        step("quiet", "skipped", 2, after("load", "failure")),
        step("stopped", "stopped", 0),
    ]
    found = first_failure(steps)
    assert found is not None
    assert (found.step, found.skipped) == ("early", ["join", "publish"])
    assert first_failure([step("a", "succeeded", 1), step("b", "stopped", 2)]) is None


def test_cause_comes_before_a_consequence_that_ended_at_the_same_time() -> None:
    steps = [step("a", "failed", 3), step("b", "failed", 3, after("a", "any"))]
    found = first_failure(steps)
    assert found is not None
    assert found.step == "a"


def test_element_of_an_array_is_named() -> None:
    steps = [step("part", "failed", 9 - index, index=index, exit_code=index) for index in range(4)]
    found = first_failure(steps)
    assert found is not None
    assert (found.step, found.index, found.exit_code) == ("part", 3, 3)


@given(st.lists(st.tuples(st.sampled_from(list(StepState)), st.integers(0, 5)), max_size=20))
def test_no_failed_step_ended_earlier(ends: list[tuple[StepState, int]]) -> None:
    steps = [step(f"s{n}", state, at) for n, (state, at) in enumerate(ends)]
    failed = [one for one in steps if one.state is StepState.FAILED]
    found = first_failure(steps)
    assert (found is None) == (not failed)
    if found is not None:
        assert all(found.ended_at <= one.ended_at for one in failed if one.ended_at)  # type: ignore[operator]
