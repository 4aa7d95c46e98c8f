"""Pipelines in files, for ``apply``, which submits them once, and ``plan``, which shows each step's
placement."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moorage.common.model.errors import InvalidInput
from moorage.common.model.pipelines import PipelineSpec, Step
from moorage.common.model.templates import split_version
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from moorage.common.views.pending import PlanView
    from moorage.common.views.pipelines import PipelineView
    from moorage.sdk import Client

# The most distinct specifications to place. A large pipeline has few distinct ones.
MAX_SHAPES = 200
# Fields that do not affect where a step fits.
_PROGRAM = {"command", "args", "env", "user_labels", "secret_env"}


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step's placement. ``plan``: where a session of the step would be placed now."""

    step: Step
    plan: PlanView


def key_of(pipeline: PipelineSpec) -> str:
    """The idempotency key of a document, which is submitted only once."""
    plain = pipeline.model_dump_json(exclude_unset=True)
    return f"apply-{hashlib.sha256(plain.encode()).hexdigest()}"


async def submit(client: Client, pipeline: PipelineSpec) -> bool:
    """Submit the pipeline. Returns False if an earlier call has already submitted it."""
    before = await _found(client, pipeline.name)
    view = await client.pipelines.create(pipeline, idempotency_key=key_of(pipeline))
    return before is None or before.id != view.id


async def plan(client: Client, pipeline: PipelineSpec) -> list[StepPlan]:
    """Where each step would be placed now if its dependencies had ended. Raises the error of a step
    that fits nowhere, and any other error with which the pipeline would be refused."""
    await client.pipelines.plan(pipeline)
    known: dict[str, PlanView] = {}
    found = []
    for step in pipeline.steps:
        shape = step.model_dump_json(include={"template", "parameters", "overrides"})
        if step.spec is not None:
            shape = step.spec.model_dump_json(exclude=_PROGRAM)

        if shape not in known:
            if len(known) == MAX_SHAPES:
                raise InvalidInput(
                    f"pipeline {pipeline.name!r} has more than {MAX_SHAPES} different steps to "
                    "place",
                    next_step=(
                        "`moorage pipelines submit --dry-run` checks it without placing its steps"
                    ),
                )

            known[shape] = await _plan_step(client, step)

        found.append(StepPlan(step, known[shape]))

    return found


async def _plan_step(client: Client, step: Step) -> PlanView:
    if step.spec is not None:
        return await client.sessions.plan(step.spec)
    assert step.template is not None
    name, version = split_version(step.template)
    return await client.templates.plan(name, step.parameters, step.overrides, version=version)


async def _found(client: Client, name: str) -> PipelineView | None:
    try:
        return await client.pipelines.get(name)
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def row(planned: StepPlan) -> tuple[str, str, str, str]:
    """A step's row: its name, its dependencies, its number of sessions, and where it fits or what
    it lacks."""
    step = planned.step
    view = planned.plan
    after = ", ".join(condition.step for condition in step.conditions) or "-"
    where = ", ".join(dict.fromkeys(place.agent_id for place in view.places))
    return step.name, after, step.array or "1", f"now, on {where}" if view.fits else waits(view)


def waits(view: PlanView) -> str:
    """The resources that a session lacks now, and its expected start."""
    starts = view.expected_start
    return (
        f"{view.text}; expected at {starts:%Y-%m-%d %H:%M:%S} UTC"
        if starts is not None
        else view.text
    )


def as_json(pipeline: PipelineSpec, plans: Sequence[StepPlan]) -> Mapping[str, object]:
    steps = [
        {"step": planned.step.name, "fits": planned.plan.fits, "plan": planned.plan}
        for planned in plans
    ]
    return {"object": f"pipeline/{pipeline.name}", "outcome": "created", "steps": steps}
