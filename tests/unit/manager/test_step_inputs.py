"""Step outputs and inputs: which fit together, and what each session receives."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from moorage.common.model.errors import InvalidInput
from moorage.common.model.outputs import overlap
from moorage.common.model.pipelines import PipelineSpec, StepState
from moorage.common.model.spec import SessionSpec
from moorage.manager.workloads import pipelines, step_outputs

SPEC = {"command": ["x"]}
MAKE = {"name": "make", "outputs": ["data", "models/best"]}


def check(*steps: dict[str, Any]) -> list[Any]:
    made = [{"spec": SPEC} | step for step in steps]
    return pipelines.check(PipelineSpec.model_validate({"name": "p", "steps": made}))


def files(name: str, *steps: dict[str, Any]) -> Any:
    ordered = check(*steps)
    places: dict[str, list[tuple[int, int | None]]] = {}
    for position, node in enumerate(pipelines.graph(ordered)):
        places.setdefault(node.item[0], []).append((position, node.item[1]))
    by_name = {step.name: step for step in ordered}
    return step_outputs.files_of(by_name[name], by_name, places)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("make/data", (0, "data", "inputs/make/data")),
        ("make/models/best", (0, "models/best", "inputs/make/models/best")),
        ({"step": "make", "output": "data", "path": "here"}, (0, "data", "here")),
    ],
)
def test_an_input_names_a_step_and_its_output(given: Any, expected: Any) -> None:
    assert files("take", MAKE, {"name": "take", "inputs": [given]}).inputs == (expected,)


def test_an_input_of_an_array_is_one_of_each_element() -> None:
    make = {"name": "make", "outputs": ["out"], "array": "3-4"}
    found = files("take", make, {"name": "take", "inputs": [{"step": "make", "path": "parts"}]})
    assert found.inputs == ((0, "out", "parts/3"), (1, "out", "parts/4"))


def test_an_input_waits_for_the_success_of_its_step() -> None:
    take = {"name": "take", "inputs": ["make/data"], "after": [{"step": "make", "on": "any"}]}
    assert pipelines.graph(check(MAKE, take))[1].waits == ((0, "any"), (0, "success"))


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (["make"], "whose outputs are: 'data', 'models/best'"),
        (["make/other"], "takes the output 'other' of step 'make'"),
        (["none/data"], "is after 'none', which is not a step"),
        (["make/data", "make/data"], "overlap"),
        ([{"step": "make", "output": "data", "path": "a"}, {"step": "make", "output": "models/best",
                                                           "path": "a/b"}], "overlap"),
    ],
)  # fmt: skip
def test_an_input_that_cannot_be_is_refused(inputs: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        check(MAKE, {"name": "take", "inputs": inputs})


@pytest.mark.parametrize("path", ["", "/data", "../data", "a//b", "a/./b", "a\0b", "x" * 1025])
def test_an_output_is_a_directory_of_the_working_directory(path: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid directory"):
        check({"name": "make", "outputs": [path]})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"runtime": "slurm"}, "runtime 'slurm' keeps working directories elsewhere"),
        ({"runtime": "custom:mine"}, "runtime 'custom:mine'"),
        ({"type": "interactive"}, "have no result"),
        ({"cluster": {"size": 2}}, "each kernel of a cluster has its own working directory"),
        ({"runtime": "process"}, ""),
        ({"runtime": "docker", "image": "x"}, ""),
    ],
)
def test_only_batch_steps_of_one_kernel_whose_files_an_agent_finds_have_outputs(
    fields: dict[str, Any], told: str
) -> None:
    steps = check(MAKE)
    specs = {"make": SessionSpec.model_validate(SPEC | fields)}
    with pytest.raises(InvalidInput, match=told) if told else nullcontext():
        step_outputs.check_runtimes(steps, specs)


def test_a_retry_makes_a_lost_input_again_with_what_made_it_and_what_followed() -> None:
    steps = check(
        {"name": "first", "outputs": ["a"]},
        {"name": "second", "inputs": ["first"], "outputs": ["b"]},
        {"name": "third", "inputs": ["second"]},
        {"name": "other", "inputs": ["first"]},
    )
    done = StepState.SUCCEEDED
    failed = StepState.FAILED
    states: dict[pipelines.Item, StepState] = {
        ("first", None): done, ("second", None): done, ("third", None): failed, ("other", None): done,
    }  # fmt: skip
    assert pipelines.to_rerun(steps, states) == {("third", None)}
    assert pipelines.to_rerun(steps, states, {"third"}) == {("second", None), ("third", None)}
    states["second", None] = failed
    assert pipelines.to_rerun(steps, states, {"second"}) == set(states)


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ([], None),
        (["a", "b", "ab"], None),
        (["a", "a"], ("a", "a")),
        (["b", "a/c", "a-b", "a"], ("a", "a/c")),
    ],
)
def test_paths_that_are_in_each_other(paths: list[str], found: Any) -> None:
    assert overlap(paths) == found
