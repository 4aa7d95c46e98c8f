"""The meaning of steps: what makes two of them equal, and which ones take earlier results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.reuse import request_hash
from moorage.common.model.spec import SessionSpec
from moorage.manager.workloads.pipeline_steps import NewStep
from moorage.manager.workloads.step_outputs import StepFiles
from moorage.manager.workloads.step_reuse import with_meanings, with_results


def new(
    position: int, *waits: tuple[int, str], files: StepFiles | None = None, **spec: Any
) -> NewStep:
    made = SessionSpec.model_validate({"command": ["x"], "reuse": "both"} | spec)
    return NewStep(
        f"s{position}",
        None,
        run=1,
        position=position,
        spec=made,
        template=None,
        waits=waits,
        files=files,
    )


def meanings(*steps: NewStep, project: str = "p") -> list[str | None]:
    return [one.meaning for one in with_meanings(steps, project, forced=False)]


def test_a_step_without_others_before_it_means_what_a_session_means() -> None:
    step = new(0)
    assert meanings(step) == [request_hash(step.spec.model_dump(mode="json"), "p")]


FIRST = new(0)
SECOND = new(1, (0, "success"))
MADE = StepFiles(("a",), ())
TAKEN = StepFiles((), ((0, "a", "in"),))


@pytest.mark.parametrize(
    ("changed", "equal"),
    [
        ((replace(FIRST, step="other"), SECOND), (True, True)),
        ((FIRST, new(1, (0, "success"), name="y", priority=7)), (True, True)),
        ((new(0, command=["y"]), SECOND), (False, False)),
        ((FIRST, new(1, (0, "any"))), (True, False)),
        ((FIRST, new(1, (0, "success"), command=["y"])), (True, False)),
        ((FIRST, replace(SECOND, files=StepFiles(("a",), ()))), (True, False)),
    ],
)
def test_a_change_changes_the_meaning_of_what_follows(changed: Any, equal: Any) -> None:
    before = meanings(FIRST, SECOND)
    after = meanings(*changed)
    assert tuple(one == other for one, other in zip(before, after, strict=True)) == equal
    assert meanings(FIRST, project="q") != before[:1]


def test_what_an_input_is_and_where_belongs_to_the_meaning() -> None:
    first = replace(FIRST, files=MADE)
    found = [
        meanings(first, replace(SECOND, files=StepFiles((), ((0, output, path),))))[1]
        for output, path in (("a", "in"), ("b", "in"), ("a", "on"), ("a", "in"))
    ]
    assert (len(set(found)), found[0] == found[3]) == (3, True)


@pytest.mark.parametrize("policy", [None, "never"])
def test_a_step_after_one_that_is_not_reused_has_no_meaning(policy: str | None) -> None:
    assert meanings(new(0, reuse=policy), SECOND) == [None, None]


def test_an_element_means_the_same_in_a_larger_array_with_another_limit() -> None:
    def element(size: int, **more: int) -> NewStep:
        step = replace(new(1), step="s0", index=1, **more)
        env = {"JOB_COMPLETION_INDEX": "1", "JOB_ARRAY_COUNT": str(size)}
        return replace(step, spec=step.spec.model_copy(update={"env": env}))

    assert meanings(element(4)) == meanings(element(8, at_once=2))


@given(st.sets(st.integers(0, 4)))
def test_no_step_takes_a_result_after_one_that_runs(there: set[int]) -> None:
    chain = [new(at, *([(at - 1, "success")] if at else []), command=[str(at)]) for at in range(5)]
    steps = with_meanings(chain, "p", forced=False)
    found = with_results(
        steps, {at: f"old{at}" for at in there}, {at: f"new{at}" for at in range(5)}
    )
    taken = [one.adopted_from is not None for one in found]
    assert taken == sorted(taken, reverse=True)
    assert all((at in there) or not took for at, took in enumerate(taken))


@pytest.mark.parametrize(("policy", "shares"), [("both", True), ("live", True), ("success", False)])
def test_equal_steps_of_one_pipeline_share_the_first_run(policy: str, shares: bool) -> None:
    steps = with_meanings([new(0, reuse=policy), new(1, reuse=policy)], "p", forced=False)
    found = with_results(steps, {}, {0: "a", 1: "b"})
    assert [one.adopted_from for one in found] == [None, "a" if shares else None]


def test_a_forced_step_shares_no_live_run_and_is_a_result_for_others() -> None:
    [step] = with_meanings([new(0)], "p", forced=True)
    assert (step.spec.reuse, step.meaning) == ("success", meanings(new(0))[0])
