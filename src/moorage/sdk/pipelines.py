"""Calls about pipelines, and a builder that submits one when its block ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, Literal

from moorage.common.model.outputs import Input
from moorage.common.model.pipelines import After, PipelineSpec, Step, StepState
from moorage.common.model.spec import SessionSpec
from moorage.common.views.pipelines import PipelineView
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport, segment

Condition = Literal["success", "failure", "any"]
_DRAW_S = 30.0


class PipelineBuilder:
    """Steps of a pipeline. ``view``: the submitted pipeline, after the block."""

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
        """Add a batch step that runs a program. ``after``: steps that must succeed, or conditions
        from ``when``. ``outputs``: directories that it leaves to later steps. ``inputs``: steps
        with one output, or STEP/OUTPUT. ``spec``: fields of its session, such as ``resources``.
        Raises ``ValueError``."""
        earlier = [after] if isinstance(after, Step | After) else list(after)
        step = Step(
            name=name or f"step-{len(self._steps) + 1}",
            after=[one if isinstance(one, After) else After(step=one.name) for one in earlier],
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
    def when(step: Step, on: Condition) -> After:
        """The condition that a step ends so."""
        return After(step=step.name, on=on)

    def spec(self) -> PipelineSpec:
        return PipelineSpec(name=self.name, steps=self._steps)


class PipelineCalls(Transport):
    async def submit_pipeline(
        self,
        pipeline: PipelineSpec,
        *,
        dry_run: bool = False,
        force: bool = False,
        idempotency_key: str | None = None,
    ) -> PipelineView:
        """Create all of its sessions, or none. ``dry_run``: only check it. ``force``: run each
        step, also where a result of before would do. ``idempotency_key``: any unique text, like a
        UUID, which makes the call safe to repeat."""
        query = {"dry_run": "true" if dry_run else None, "force": "true" if force else None}
        return await self.call(
            PipelineView,
            "POST",
            "/v1/pipelines",
            query=query,
            body=pipeline,
            idempotency_key=self.repeatable(idempotency_key),
        )

    @asynccontextmanager
    async def pipeline(self, name: str) -> AsyncIterator[PipelineBuilder]:
        """Submit what the block has built; nothing if it raises."""
        builder = PipelineBuilder(name)
        yield builder
        builder.view = await self.submit_pipeline(builder.spec())

    async def list_pipelines(self) -> list[PipelineView]:
        """Newest first, without their steps."""
        return await self.every(Page[PipelineView], "/v1/pipelines")

    async def get_pipeline(self, ref: str) -> PipelineView:
        return await self.call(PipelineView, "GET", f"/v1/pipelines/{segment(ref)}")

    async def draw_pipeline(self, ref: str) -> str:
        """Its graph with the state of each step, as SVG."""
        path = f"/v1/pipelines/{segment(ref)}/graph.svg"
        picture = b""
        with closing(await self.stream(path, {}, {}, begin_s=_DRAW_S)) as answer:
            try:
                while piece := await answer.next_piece():
                    picture += piece
            except OSError as error:
                raise self.unreachable(error) from error

        return picture.decode()

    async def stop_pipeline(self, ref: str) -> PipelineView:
        return await self.call(PipelineView, "POST", f"/v1/pipelines/{segment(ref)}/stop")

    async def retry_pipeline(self, ref: str) -> PipelineView:
        """Run failed and stopped steps again, and what ended after them."""
        return await self.call(PipelineView, "POST", f"/v1/pipelines/{segment(ref)}/retry")


def has_ended(view: PipelineView) -> bool:
    """Whether no step runs or waits any more."""
    return view.state not in (StepState.PENDING, StepState.RUNNING)
