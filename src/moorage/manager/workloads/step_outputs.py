"""Outputs and inputs of steps: whether they match, and the files of each session. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.common.model.errors import InvalidInput
from moorage.common.model.outputs import FOLDER, MAX_INPUTS, Input, overlap
from moorage.common.model.pipelines import Step
from moorage.common.model.runtimes import RUNTIMES, is_runtime, traits_of
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType

# By step: the position and index of each of its sessions.
Places = Mapping[str, Sequence[tuple[int, int | None]]]
WITH_OUTPUTS = tuple(name for name, traits in RUNTIMES.items() if traits.outputs)


@dataclass(frozen=True, slots=True)
class StepFiles:
    """Files of one session. ``inputs``: for each input, the position of an earlier session, its
    output, and the input's path."""

    outputs: tuple[str, ...]
    inputs: tuple[tuple[int, str, str], ...]

    def as_json(self) -> dict[str, Any]:
        return {"outputs": list(self.outputs), "inputs": [list(input_) for input_ in self.inputs]}


def check_inputs(steps: Sequence[Step]) -> None:
    """Raise ``InvalidInput`` for an input that is no step's output, or that overlaps another input.
    ``steps``: each with the steps that it follows."""
    by_name = {step.name: step for step in steps}
    for step in steps:
        for input_ in step.inputs:
            _output(step, input_, by_name[input_.step])

        if found := overlap(
            _path(step_input, by_name[step_input.step]) for step_input in step.inputs
        ):
            raise InvalidInput(
                f"step {step.name!r}: the input paths {found[0]!r} and {found[1]!r} overlap",
                field=f"steps.{step.name}.inputs",
                next_step="give each input a different `path`",
            )


def check_runtimes(steps: Sequence[Step], specs: Mapping[str, SessionSpec]) -> None:
    """Raise ``InvalidInput`` for a step whose session cannot have outputs or inputs. ``specs``: as
    they are stored."""
    for step in steps:
        given = "outputs" if step.outputs else "inputs" if step.inputs else ""
        if not given:
            continue

        spec = specs[step.name]
        problem = ""
        cure = ""
        if spec.type is not SessionType.BATCH:
            problem = f"sessions of type {spec.type} have no result"
            cure = "use type batch"
        elif spec.size > 1:
            problem = "each kernel of a cluster has its own working directory"
            cure = "omit `cluster`"
        elif not is_runtime(spec.runtime) or not traits_of(spec.runtime).outputs:
            problem = f"runtime {spec.runtime!r} keeps working directories elsewhere"
            cure = f"use runtime {' or '.join(WITH_OUTPUTS)}, or a directory that its nodes share"

        if problem:
            raise InvalidInput(
                f"step {step.name!r} has `{given}`, and {problem}",
                field=f"steps.{step.name}.{given}",
                next_step=cure,
            )


def files_of(step: Step, by_name: Mapping[str, Step], places: Places) -> StepFiles | None:
    """Files of each of a step's sessions; None if the step has none."""
    if not step.outputs and not step.inputs:
        return None

    inputs = []
    for input_ in step.inputs:
        source = by_name[input_.step]
        path = _path(input_, source)
        for position, index in places[input_.step]:
            inputs.append(
                (
                    position,
                    _output(step, input_, source),
                    path if index is None else f"{path}/{index}",
                )
            )

    if len(inputs) > MAX_INPUTS:
        raise InvalidInput(
            f"step {step.name!r} has {len(inputs)} inputs, counting the elements of arrays; "
            f"{MAX_INPUTS} are allowed",
            field=f"steps.{step.name}.inputs",
            next_step="combine them in an intermediate step",
        )

    return StepFiles(tuple(step.outputs), tuple(inputs))


def _output(step: Step, input_: Input, source: Step) -> str:
    if input_.output is None and len(source.outputs) == 1:
        return source.outputs[0]

    if input_.output is None or input_.output not in source.outputs:
        has = ", ".join(map(repr, source.outputs)) or "none"
        asked = "an input" if input_.output is None else f"the output {input_.output!r}"
        raise InvalidInput(
            f"step {step.name!r} takes {asked} of step {input_.step!r}, whose outputs are: {has}",
            field=f"steps.{step.name}.inputs",
            next_step=(
                f"name one of them, such as {input_.step}/OUTPUT, or add it to `outputs` of "
                f"{input_.step!r}"
            ),
        )

    return input_.output


def _path(input_: Input, source: Step) -> str:
    return input_.path or f"{FOLDER}/{input_.step}/{input_.output or source.outputs[0]}"
