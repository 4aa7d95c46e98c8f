"""Pipelines: order, conditions, arrays, and the steps that a retry runs again."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cli import pipeline_table
from moorage.common.model.errors import InvalidInput
from moorage.common.model.pipelines import MAX_INDEX, MAX_STEPS, Array, PipelineSpec, StepState
from moorage.common.model.reasons import Reason
from moorage.common.model.status import Result, Status
from moorage.common.views.pipelines import StepView
from moorage.manager.workloads import pipelines

SUCCEEDED = StepState.SUCCEEDED
FAILED = StepState.FAILED
SKIPPED = StepState.SKIPPED
SPEC = {"command": ["x"]}
CONDITIONS = ("success", "failure", "any")


def pipeline(*steps: dict[str, Any]) -> PipelineSpec:
    made = [{"spec": SPEC} | step for step in steps]
    return PipelineSpec.model_validate({"name": "p", "steps": made})


@pytest.mark.parametrize(
    ("text", "expected", "at_once"),
    [
        ("0-3", (0, 1, 2, 3), None),
        ("7", (7,), None),
        ("0-9:3%2", (0, 3, 6, 9), 2),
        ("1,3,5", (1, 3, 5), None),
        ("8-20:4,0-3%5", (0, 1, 2, 3, 8, 12, 16, 20), 5),
        ("999999999", (MAX_INDEX,), None),
        ("0-1%999999999", (0, 1), 999_999_999),
    ],
)
def test_arrays_as_slurm_writes_them(
    text: str, expected: tuple[int, ...], at_once: int | None
) -> None:
    assert Array.parse(text) == Array(expected, at_once)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0-99%10"),
        ("3-2", "no element from 3 to 2"),
        ("0-9%0", "would never run"),
        ("a-b", "0-99%10"),
        ("0-9%", "0-99%10"),
        ("-1-3", "from 0 to 999999999"),
        ("-1", "from 0 to 999999999"),
        ("0-9999999999", "from 0 to 999999999"),
        ("0-9:0", "the step is at least 1"),
        ("0-9:", "0-99%10"),
        ("1,,2", "0-99%10"),
        ("0-3, 5", "0-99%10"),
        ("٠-٣", "0-99%10"),
        ("0-3,2", "has the element 2 twice"),
        ("5,5", "has the element 5 twice"),
        ("0-999999", "has 1000000 elements; 1 to 10000 are allowed"),
        ("0-1000000%10", "has 1000001 elements; 1 to 10000 are allowed"),
        ("0-9999,10000", "has 10001 elements"),
        ("0-999999999,0-999999999", "has 2000000000 elements"),
    ],
)
def test_an_array_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        Array.parse(text)

    assert repr(text[:40]) in str(refused.value), "the value"
    assert "such as" in str(refused.value), "an example"


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(1, 7)),
        min_size=1,
        max_size=4,
    ),
    st.none() | st.integers(1, 100),
)
def test_an_array_has_the_indexes_of_its_parts_each_once(
    parts: list[tuple[int, int, int]], at_once: int | None
) -> None:
    """A step of 1 may be omitted, and so may the last index of one element."""
    written = []
    wanted: list[int] = []
    for first, more, step in parts:
        found = range(first, first + more + 1, step)
        text = f"{first}-{first + more}:{step}"
        if step == 1:
            text = str(first) if more == 0 else f"{first}-{first + more}"

        written.append(text)
        wanted += found

    text = ",".join(written) + ("" if at_once is None else f"%{at_once}")
    if len(set(wanted)) < len(wanted):
        with pytest.raises(ValueError, match="twice"):
            Array.parse(text)
        return

    array = Array.parse(text)
    assert (array.indexes, array.at_once) == (tuple(sorted(wanted)), at_once)
    assert array.indexes == Array.parse(",".join(map(str, array.indexes))).indexes
    assert (
        array.size == 1
        or array.step == 1
        or (array.indexes == tuple(range(array.indexes[0], array.indexes[-1] + 1, array.step)))
    )


@given(st.text("0123456789-,:% a", max_size=12))
def test_any_text_is_an_array_or_is_refused_with_an_example(text: str) -> None:
    try:
        array = Array.parse(text)
    except ValueError as error:
        said = str(error)
    else:
        said = "such as" if list(array.indexes) == sorted(set(array.indexes)) else "in disorder"
        assert 0 < array.size <= MAX_STEPS

    assert "such as" in said


def test_yaml_reads_the_key_on_as_true() -> None:
    spec = pipeline({"name": "a"}, {"name": "b", "after": [{"step": "a", True: "failure"}]})
    assert spec.steps[1].after[0].on == "failure"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"on": "failure"}, "any-failure:a"),
        ({"on": "failure", "of": "any"}, "any-failure:a"),
        ({"on": "failure", "of": "all"}, "failure"),
        ({}, "success"),
        ({"of": "all"}, "success"),
        ({"of": "any"}, "any-success:a"),
        ({"on": "any"}, "any"),
        ({"on": "any", "of": "any"}, "any"),
    ],
)
def test_condition_on_elements_of_an_array(condition: dict[str, str], expected: str) -> None:
    after = {"name": "b", "after": [{"step": "a"} | condition]}
    nodes = pipelines.graph(pipelines.check(pipeline({"name": "a", "array": "0-2"}, after)))
    assert nodes[-1].waits == tuple((at, expected) for at in range(3))

    # a step that is no array has one session, which must end so
    nodes = pipelines.graph(pipelines.check(pipeline({"name": "a"}, after)))
    assert nodes[-1].waits == ((0, condition.get("on", "success")),)


def test_ten_thousand_steps_are_allowed_and_no_more() -> None:
    assert (
        len(pipelines.graph(pipelines.check(pipeline({"name": "a", "array": "1-10000"})))) == 10_000
    )
    with pytest.raises(InvalidInput, match="10001 steps"):
        pipelines.check(pipeline({"name": "a", "array": "1-10000"}, {"name": "b"}))


@pytest.mark.parametrize(
    ("status", "result", "reason", "state"),
    [
        (Status.PENDING, Result.UNDEFINED, "", StepState.PENDING),
        (Status.TERMINATING, Result.UNDEFINED, "", StepState.RUNNING),
        (Status.TERMINATED, Result.SUCCESS, Reason.EXIT_ZERO, SUCCEEDED),
        (Status.TERMINATED, Result.FAILED, Reason.EXIT_NONZERO, FAILED),
        (Status.ERROR, Result.UNDEFINED, Reason.AGENT_LOST, FAILED),
        (Status.CANCELLED, Result.UNDEFINED, Reason.DEPENDENCY_FAILED, SKIPPED),
        (Status.CANCELLED, Result.UNDEFINED, Reason.USER_REQUESTED, StepState.STOPPED),
        (Status.TERMINATED, Result.FAILED, Reason.USER_REQUESTED, StepState.STOPPED),
    ],
)
def test_the_state_of_a_step_follows_from_its_session(
    status: Status, result: Result, reason: str, state: StepState
) -> None:
    assert pipelines.step_state(status, result, reason) is state


@st.composite
def pipelines_of(draw: st.DrawFn) -> PipelineSpec:
    steps: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 7))):
        earlier = (
            draw(st.lists(st.integers(0, number - 1), unique=True, max_size=3)) if number else []
        )
        after = [
            {
                "step": f"s{one}",
                "on": draw(st.sampled_from(CONDITIONS)),
                "of": draw(st.sampled_from([None, "any", "all"])),
            }
            for one in earlier
        ]
        array = draw(st.sampled_from([None, None, "0-2", "1-5%2"]))
        steps.append({"name": f"s{number}", "after": after, "array": array})
    return pipeline(*draw(st.permutations(steps)))


def met(state: StepState, on: str) -> bool:
    return on == "any" or state is (SUCCEEDED if on == "success" else FAILED)


def play(nodes: list[pipelines.PipelineNode], fails: set[int]) -> list[StepState]:
    """Runs all nodes by the database's rules: a node runs once its conditions are met, and is
    skipped if they cannot be met."""
    ended: dict[int, StepState] = {}
    running: list[int] = []
    while len(ended) < len(nodes):
        for at, node in enumerate(nodes):
            if at in ended or at in running or any(one not in ended for one, _ in node.waits):
                continue

            sets: dict[str, list[bool]] = {}
            for one, on in node.waits:
                by_set = on.startswith("any-")
                outcome = on.removeprefix("any-").partition(":")[0]
                sets.setdefault(on if by_set else f"{one} {on}", []).append(
                    met(ended[one], outcome)
                )

            if all(any(set_) for set_ in sets.values()):
                running.append(at)
            else:
                ended[at] = SKIPPED

        if running:
            at = running.pop()
            ended[at] = FAILED if at in fails else SUCCEEDED

    return [ended[at] for at in range(len(nodes))]


@given(pipelines_of(), st.data())
def test_each_step_runs_after_its_conditions_and_the_end_is_what_the_graph_implies(
    spec: PipelineSpec, data: st.DataObject
) -> None:
    steps = pipelines.check(spec)
    nodes = pipelines.graph(steps)
    fails = data.draw(st.sets(st.integers(0, len(nodes) - 1)))
    ended = dict(zip([node.item for node in nodes], play(nodes, fails), strict=True))
    for step in steps:
        conditions = []
        for after in step.after:
            earlier = next(s for s in steps if s.name == after.step)
            outcomes = [met(ended[item], after.on) for item in pipelines.items(earlier)]
            conditions.append(any(outcomes) if after.of_any else all(outcomes))

        for item in pipelines.items(step):
            assert (ended[item] is SKIPPED) != all(conditions)

    failed = FAILED in ended.values()
    counts = {state: list(ended.values()).count(state) for state in StepState}
    assert pipelines.pipeline_state(counts) is (FAILED if failed else SUCCEEDED)

    again = pipelines.to_rerun(steps, ended)
    assert {item for item, state in ended.items() if state is FAILED} <= again
    for node in nodes:
        followed = {nodes[at].item for at, _ in node.waits}
        assert node.item in again or not followed & again


def test_elements_know_the_limit_of_their_array_and_their_place_in_it() -> None:
    steps = pipelines.check(pipeline({"name": "a", "array": "3-9:3%2"}, {"name": "b"}))
    nodes = {node.item: node for node in pipelines.graph(steps)}
    assert {item: node.at_once for item, node in nodes.items()} == {
        ("a", 3): 2, ("a", 6): 2, ("a", 9): 2, ("b", None): None,
    }  # fmt: skip
    [a] = [step for step in steps if step.name == "a"]
    spec = a.spec
    assert spec is not None
    assert pipelines.with_index(spec, a, 6).env == {
        "JOB_COMPLETION_INDEX": "6",
        "JOB_ARRAY_COUNT": "3",
        "JOB_ARRAY_MIN": "3",
        "JOB_ARRAY_MAX": "9",
        "JOB_ARRAY_STEP": "3",
    }
    assert pipelines.with_index(spec, a, None) is spec


def test_element_by_element() -> None:
    """Each element waits for the one with its index only, in the order of the indexes."""
    after = {"step": "a", "of": "each"}
    either = {"step": "a", "on": "any", "of": "each"}
    steps = pipelines.check(
        pipeline(
            {"name": "a", "array": "0-2,7"},
            {"name": "b", "array": "7,0-2%1", "after": [after]},
            {"name": "c", "array": "0-2,7", "after": [either, "b"]},
        )
    )
    nodes = pipelines.graph(steps)
    waits = {node.item: node.waits for node in nodes}
    at = {node.item: number for number, node in enumerate(nodes)}
    assert waits["b", 7] == ((at["a", 7], "success"),)
    assert waits["b", 1] == ((at["a", 1], "success"),)
    assert set(waits["c", 2]) == {
        (at["a", 2], "any"),
        *((at["b", index], "success") for index in (0, 1, 2, 7)),
    }


@pytest.mark.parametrize("arrays", [("0-2", None), (None, "0-2"), (None, None), ("0-2", "0-3")])
def test_element_by_element_needs_two_arrays_with_equal_indexes(
    arrays: tuple[str | None, str | None],
) -> None:
    first = {"name": "a", "array": arrays[0]}
    second = {"name": "b", "array": arrays[1], "after": [{"step": "a", "of": "each"}]}
    with pytest.raises(InvalidInput, match="the same indexes") as refused:
        pipelines.check(pipeline(first, second))

    assert refused.value.field == "steps.b.after"


def test_ten_thousand_elements_may_follow_ten_thousand_one_by_one() -> None:
    first = {"name": "a", "array": "0-4999"}
    second = {"name": "b", "array": "0-4999", "after": [{"step": "a", "of": "each"}]}
    nodes = pipelines.graph(pipelines.check(pipeline(first, second)))
    assert sum(len(node.waits) for node in nodes) == 5000


def test_the_table_shows_depth_conditions_and_progress() -> None:
    def view(
        name: str, state: StepState, *after: str, index: int | None = None, run: int = 1
    ) -> StepView:
        return StepView.model_validate(
            {
                "name": name,
                "state": state,
                "index": index,
                "run": run,
                "session_id": "",
                "session": "",
            }
            | {"after": [{"step": one} for one in after], "reason": "exit-nonzero"}
        )

    steps = [view("load", SUCCEEDED), view("part", SUCCEEDED, "load", index=0)]
    steps += [view("part", StepState.PENDING, "load", index=1), view("end", FAILED, "part", run=2)]
    shown = pipeline_table.rows(steps, datetime(2026, 1, 1, tzinfo=UTC), 80)
    titles = ("STEP", "STATE", "NOTE", "AFTER")
    columns = [pipeline_table.COLUMNS.index(title) for title in titles]
    assert [tuple(row[column] for column in columns) for row in shown] == [
        ("load", "succeeded", "", ""),
        ("└─ part[0-1]", "1 pending, 1 succeeded", "", "load"),
        ("  └─ end", "failed", "exit-nonzero, run 2", "part"),
    ]
