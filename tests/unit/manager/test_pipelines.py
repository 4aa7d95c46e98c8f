"""Pipelines: order, conditions, arrays, and the steps that a retry runs again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cli import pipeline_table
from moorage.common.model.errors import InvalidInput
from moorage.common.model.pipelines import Array, PipelineSpec, StepState
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


@pytest.mark.parametrize("text", ["", "1", "3-2", "0-9%0", "a-b", "0-9%", "-1-3", "0-9999999999"])
def test_an_array_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="array"):
        Array.parse(text)


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


def play(
    nodes: list[pipelines.PipelineNode], fails: set[int], at_once: dict[str, int]
) -> list[StepState]:
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

        for name, limit in at_once.items():
            assert sum(nodes[at].item[0] == name for at in running) <= limit

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
    at_once = {s.name: 2 for s in steps if s.array and "%" in s.array}
    fails = data.draw(st.sets(st.integers(0, len(nodes) - 1)))
    ended = dict(zip([node.item for node in nodes], play(nodes, fails, at_once), strict=True))
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
    second = pipelines.graph(steps, again)
    assert [node.item for node in second] == [node.item for node in nodes]

    for node in second:
        followed = {second[at].item for at, _ in node.waits}
        assert (
            node.item in again or not followed & again or node.item[0] in {one for one, _ in again}
        )


@pytest.mark.parametrize(
    ("array", "again", "pending", "follows"),
    [
        ("0-4%2", None, (), {2: 0, 3: 1, 4: 2}),
        ("0-4%2", (0, 2), (3, 4), {3: 0, 4: 2}),
        ("0-4%2", (0, 1), (2, 3, 4), {2: 0, 3: 1, 4: 2}),
        ("0-4%2", (0, 2, 4), (), {4: 0}),
        ("0-4%2", (), (1, 3, 4), {4: 1}),
        ("0-3%1", (0, 1), (3,), {1: 0, 3: 1}),
        ("0-3%1", (3,), (0, 2), {2: 0, 3: 2}),
        ("0-4", (0, 2), (3, 4), {}),
    ],
)
def test_an_array_counts_what_is_still_to_run(
    array: str,
    again: tuple[int, ...] | None,
    pending: tuple[int, ...],
    follows: dict[int, int],
) -> None:
    """Each element is at the position given by its number."""
    steps = pipelines.check(pipeline({"name": "a", "array": array}))
    unfinished = None if again is None else {("a", index) for index in again + pending}
    nodes = pipelines.graph(steps, unfinished)
    found = {at: node.follows for at, node in enumerate(nodes) if node.follows is not None}
    assert found == follows
    waits = {at: node.waits for at, node in enumerate(nodes) if node.waits}
    assert waits == {at: ((earlier, "any"),) for at, earlier in follows.items()}


class Played:
    """An array whose elements start and end in any order that the stored dependencies allow.
    ``waits``: the dependency of each element's current run."""

    def __init__(self, size: int, at_once: int) -> None:
        self.at_once = at_once
        self.steps = pipelines.check(pipeline({"name": "a", "array": f"0-{size - 1}%{at_once}"}))
        self.states = dict.fromkeys(range(size), StepState.PENDING)
        self.waits = self._follows(None)

    def _follows(self, unfinished: set[pipelines.Item] | None) -> dict[int, int | None]:
        nodes = pipelines.graph(self.steps, unfinished)
        return {at: node.follows for at, node in enumerate(nodes)}

    def of(self, *states: StepState) -> list[int]:
        return [at for at, state in self.states.items() if state in states]

    def may_begin(self) -> list[int]:
        unended = self.of(StepState.PENDING, StepState.RUNNING)
        return [at for at in self.of(StepState.PENDING) if self.waits[at] not in unended]

    def begin(self, element: int) -> None:
        self.states[element] = StepState.RUNNING
        assert len(self.of(StepState.RUNNING)) <= self.at_once

    def stop(self) -> None:
        """The last elements are stopped first, as when a pipeline is stopped, so that no element
        starts because another one ends."""
        before = self.may_begin()
        for at in reversed(self.of(StepState.PENDING, StepState.RUNNING)):
            self.states[at] = StepState.STOPPED
            assert set(self.may_begin()) <= set(before)

    def retry(self, keeping: set[int]) -> None:
        """``keeping``: elements that succeeded and are kept; others run again after earlier
        steps."""
        again = {at for at in self.of(SUCCEEDED, FAILED, StepState.STOPPED) if at not in keeping}
        pending = set(self.of(StepState.PENDING))
        follows = self._follows({("a", at) for at in again | pending})
        for at in again:
            self.states[at] = StepState.PENDING
        for at in again | pending:
            self.waits[at] = follows[at]
            assert follows[at] is None or follows[at] in again | pending


@given(st.integers(1, 8), st.integers(1, 4), st.data())
def test_no_more_elements_run_at_once_than_may_after_any_retries(
    size: int, at_once: int, data: st.DataObject
) -> None:
    """Everything that may run starts before the next one ends. In between, some are left pending,
    or the array is stopped or retried."""
    array = Played(size, at_once)
    for _ in range(data.draw(st.integers(0, 4))):
        for _ in range(data.draw(st.integers(0, size))):
            for at in array.may_begin():
                if data.draw(st.integers(0, 3)):
                    array.begin(at)

            for at in array.of(StepState.RUNNING)[: data.draw(st.integers(0, at_once))]:
                array.states[at] = data.draw(st.sampled_from([SUCCEEDED, FAILED]))

        if data.draw(st.booleans()):
            array.stop()

        for at in array.of(StepState.RUNNING):
            array.states[at] = data.draw(st.sampled_from([SUCCEEDED, FAILED]))

        succeeded = array.of(SUCCEEDED)
        keeping = succeeded
        if succeeded and data.draw(st.integers(0, 3)) == 0:
            keeping = data.draw(st.lists(st.sampled_from(succeeded), unique=True))
        array.retry(set(keeping))

    while array.of(StepState.PENDING, StepState.RUNNING):
        for at in array.may_begin():
            array.begin(at)

        running = array.of(StepState.RUNNING)
        assert running, "elements wait for each other"
        array.states[data.draw(st.sampled_from(running))] = SUCCEEDED


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
