"""Pipelines as code: a builder for their steps, and a test whether a pipeline has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from moorage.common.model.outputs import Input
from moorage.common.model.pipelines import After, PipelineSpec, Step, StepState
from moorage.common.model.spec import SessionSpec
from moorage.common.views.pipelines import PipelineView

Condition = Literal["success", "failure", "any"]


class PipelineBuilder:
    """The steps of a pipeline. ``view``: the submitted pipeline, available after the block."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.view: PipelineView | None = None
        self._steps: list[Step] = []

    def run(
        self,
        *command: str,
        name: str | None = None,
        after: Step | After | Sequence[Step | After] = (),
        array: str | None = None,
        outputs: Sequence[str] = (),
        inputs: Sequence[str | Input | Step] = (),
        **spec: Any,
    ) -> Step:
        """Add a batch step that runs a program. ``after``: steps that must succeed first, or
        conditions from ``when``. ``outputs``: directories for later steps. ``inputs``: steps with
        one output, or STEP/OUTPUT. ``spec``: fields of its session, such as ``resources``. Raises
        ``ValueError``."""
        earlier = [after] if isinstance(after, Step | After) else list(after)
        step = Step(
            name=name or f"step-{len(self._steps) + 1}",
            after=[
                dependency if isinstance(dependency, After) else After(step=dependency.name)
                for dependency in earlier
            ],
            array=array,
            outputs=list(outputs),
            inputs=[
                Input(step=input_.name) if isinstance(input_, Step) else input_ for input_ in inputs
            ],
            spec=SessionSpec.model_validate({"command": list(command)} | spec),
        )
        self._steps.append(step)

        return step

    @staticmethod
    def when(step: Step, on: Condition, of: Literal["any", "all"] | None = None) -> After:
        """The condition that a step ends with this result. ``of``: for an array, whether any or all
        of its elements must; by default, any must fail, or all must succeed."""
        return After(step=step.name, on=on, of=of)

    def spec(self) -> PipelineSpec:
        return PipelineSpec(name=self.name, steps=self._steps)


def has_ended(view: PipelineView) -> bool:
    """Whether no step is running or waiting any more."""
    return view.state not in (StepState.PENDING, StepState.RUNNING)
