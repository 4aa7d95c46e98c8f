"""Pipelines: their graph, the dependencies of each step, and the steps that a retry runs again.
Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from moorage.common.model.errors import InvalidInput
from moorage.common.model.pipelines import (
    MAX_EDGES,
    MAX_STEPS,
    After,
    Array,
    PipelineSpec,
    Step,
    StepState,
)
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, Result, SessionType, Status
from moorage.manager.workloads.step_outputs import check_inputs

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
# The variables that describe an array to its elements. They do not make equal elements differ.
ARRAY_PREFIX = "JOB_ARRAY_"
Item = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class PipelineNode:
    """A session of a pipeline. ``waits``: positions of earlier nodes, each with the condition;
    ``any-failure:STEP`` or ``any-success:STEP`` if one element of the step's array is enough.
    ``at_once``: of an array element, how many of its array may run at a time; None for all."""

    item: Item
    waits: tuple[tuple[int, str], ...]
    at_once: int | None = None


def check(pipeline: PipelineSpec) -> list[Step]:
    """Check the steps, and return each after those that it waits for. Raises ``InvalidInput``."""
    steps = {step.name: step for step in pipeline.steps}
    if len(steps) < len(pipeline.steps):
        counted = Counter(step.name for step in pipeline.steps)
        twice = next(name for name, count in counted.items() if count > 1)
        raise InvalidInput(
            f"step {twice!r} occurs twice", field="steps", next_step="give each step a unique name"
        )

    for step in pipeline.steps:
        for after in step.conditions:
            if after.step not in steps:
                raise InvalidInput(
                    f"step {step.name!r} is after {after.step!r}, which is not a step of the "
                    "pipeline",
                    field=f"steps.{step.name}.after",
                    next_step="name one of its steps",
                )

    try:
        order = list(
            TopologicalSorter(
                {n: [a.step for a in s.conditions] for n, s in steps.items()}
            ).static_order()
        )
    except CycleError as error:
        cycle = " after ".join(reversed(error.args[1]))
        raise InvalidInput(
            f"steps wait for each other: {cycle}", field="steps", next_step="remove one `after`"
        ) from None

    check_inputs(pipeline.steps)
    _check_elementwise(steps)
    sizes = {step.name: len(items(step)) for step in pipeline.steps}
    if (total := sum(sizes.values())) > MAX_STEPS:
        raise InvalidInput(
            f"the pipeline has {total} steps, counting the elements of arrays; {MAX_STEPS} are "
            "allowed",
            field="steps",
            next_step="split it, or let one session do the work of several",
        )

    edges = sum(
        sizes[s.name] * (1 if a.of == "each" else sizes[a.step])
        for s in pipeline.steps
        for a in s.conditions
    )
    if edges > MAX_EDGES:
        raise InvalidInput(
            f"the steps wait for {edges} other steps in total; {MAX_EDGES} are allowed",
            field="steps",
            next_step="insert one small step between two large arrays",
        )

    return [steps[name] for name in order]


def check_specs(steps: Iterable[Step], specs: Mapping[str, SessionSpec]) -> None:
    """Raise ``InvalidInput`` for a step whose specification sets fields that the pipeline itself
    sets."""
    for step in steps:
        spec = specs[step.name]
        for field in ("name", "depends_on"):
            if getattr(spec, field):
                raise InvalidInput(
                    f"step {step.name!r}: `spec.{field}` cannot be set for steps",
                    field=f"steps.{step.name}.spec.{field}",
                    next_step="use the step's `name` and `after`",
                )

        if spec.tasks is not None:
            raise InvalidInput(
                f"step {step.name!r}: `spec.tasks` cannot be set for steps",
                field=f"steps.{step.name}.spec.tasks",
                next_step="use the step's `array`, or a session of its own",
            )

        for after in step.conditions:
            if after.on == "success" and specs[after.step].type is not SessionType.BATCH:
                raise InvalidInput(
                    f"step {step.name!r} is after the success of {after.step!r}, which is not a "
                    "batch session",
                    field=f"steps.{step.name}.after",
                    next_step="use `on: any`",
                )


def _check_elementwise(steps: Mapping[str, Step]) -> None:
    """Raise ``InvalidInput`` for a condition on each element whose arrays have other indexes."""
    for step in steps.values():
        for after in step.conditions:
            if after.of != "each" or _indexes(step) == _indexes(steps[after.step]) != (None,):
                continue
            raise InvalidInput(
                f"step {step.name!r} (array {step.array}) is after each element of {after.step!r} "
                f"(array {steps[after.step].array}); both need an array with the same indexes",
                field=f"steps.{step.name}.after",
                next_step="give both steps the same `array`, or use `of: all`",
            )


def _indexes(step: Step) -> tuple[int | None, ...]:
    return Array.parse(step.array).indexes if step.array else (None,)


def items(step: Step) -> list[Item]:
    """The sessions of a step."""
    return [(step.name, index) for index in _indexes(step)]


def graph(steps: Sequence[Step]) -> list[PipelineNode]:
    """One node per session. ``steps``: as ``check`` returns them."""
    of_step: dict[str, list[int]] = {}
    nodes: list[PipelineNode] = []
    for step in steps:
        shared = dict.fromkeys(
            (at, _condition(after, len(of_step[after.step])))
            for after in step.conditions
            if after.of != "each"
            for at in of_step[after.step]
        )
        each = [after for after in step.conditions if after.of == "each"]
        at_once = Array.parse(step.array).at_once if step.array else None
        of_step[step.name] = []
        for number, item in enumerate(items(step)):
            own = [(of_step[after.step][number], after.on) for after in each]
            of_step[step.name].append(len(nodes))
            nodes.append(PipelineNode(item, tuple(dict.fromkeys([*shared, *own])), at_once))

    return nodes


def _condition(after: After, elements: int) -> str:
    """The condition on each element of a step."""
    return f"any-{after.on}:{after.step}" if after.of_any and elements > 1 else after.on


def with_index(spec: SessionSpec, step: Step, index: int | None) -> SessionSpec:
    """The specification of an array element."""
    if index is None or step.array is None:
        return spec
    own = {**_variables(step.array), INDEX_VARIABLE: str(index)}
    return spec.model_copy(update={"env": {**spec.env, **own}})


@lru_cache(maxsize=64)
def _variables(text: str) -> Mapping[str, str]:
    array = Array.parse(text)
    return {
        f"{ARRAY_PREFIX}COUNT": str(array.size),
        f"{ARRAY_PREFIX}MIN": str(array.indexes[0]),
        f"{ARRAY_PREFIX}MAX": str(array.indexes[-1]),
        f"{ARRAY_PREFIX}STEP": str(array.step),
    }


def step_state(status: Status, result: Result, reason: str) -> StepState:
    """The state of a step whose session is in this state."""
    if status is Status.PENDING:
        return StepState.PENDING
    if status not in TERMINAL:
        return StepState.RUNNING
    if reason == Reason.DEPENDENCY_FAILED:
        return StepState.SKIPPED
    if result is Result.SUCCESS:
        return StepState.SUCCEEDED
    if status is Status.CANCELLED or reason == Reason.USER_REQUESTED:
        return StepState.STOPPED
    if result is Result.FAILED or status is Status.ERROR:
        return StepState.FAILED

    return StepState.SUCCEEDED


def pipeline_state(counts: Mapping[StepState, int]) -> StepState:
    """The state of a pipeline that has these numbers of steps in each state. A pipeline with a
    failed step has failed, no matter what ran afterwards."""
    if counts.get(StepState.RUNNING):
        return StepState.RUNNING
    if counts.get(StepState.PENDING):
        begun = any(counts.get(state) for state in StepState if state is not StepState.PENDING)
        return StepState.RUNNING if begun else StepState.PENDING

    for state in (StepState.FAILED, StepState.STOPPED):
        if counts.get(state):
            return state

    return StepState.SUCCEEDED


def to_rerun(
    steps: Sequence[Step], states: Mapping[Item, StepState], without_input: Collection[str] = ()
) -> set[Item]:
    """The steps that a retry runs again: those that failed or were stopped, and those that ended
    after them.

    The other steps are kept; pending steps wait for the new runs. ``without_input``: steps that
    failed because an input was gone; the steps that produced their inputs also run again."""
    followers: dict[str, list[Step]] = {}
    for step in steps:
        for after in step.conditions:
            followers.setdefault(after.step, []).append(step)

    again = {
        name for name, state in states.items() if state in (StepState.FAILED, StepState.STOPPED)
    }
    for step in reversed(steps):  # in ``check`` order, so that an input's own inputs follow
        if step.name in without_input:
            for source in {input_.step for input_ in step.inputs}:
                again |= {key for key in states if key[0] == source}

    waiting = deque(sorted({name for name, _ in again}))
    seen = set()
    while waiting:
        for step in followers.get(waiting.popleft(), ()):
            if step.name not in seen:
                seen.add(step.name)
                waiting.append(step.name)
                again |= {item for item in items(step) if states[item] is not StepState.PENDING}

    return again
