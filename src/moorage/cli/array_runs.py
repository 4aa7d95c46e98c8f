"""``moorage run --array``: a pipeline of one step, followed until all its elements have ended."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moorage.cli import exit_codes
from moorage.cli.array_table import counts_text
from moorage.cli.output import printable
from moorage.cli.pipeline_logs import label
from moorage.common.model.errors import InvalidInput
from moorage.common.model.pipelines import Array, PipelineSpec, Step, StepState
from moorage.common.model.reasons import Reason
from moorage.sdk import Unreachable

if TYPE_CHECKING:
    from moorage.cli.context import Cli
    from moorage.cli.session_options import TemplateStart
    from moorage.common.model.spec import SessionSpec
    from moorage.common.views.pipelines import PipelineView, StepView
    from moorage.sdk import Client

# Changes within this many seconds are shown together.
GATHER_S = 0.5
# The most failed elements that are named at the end.
NAMED = 5
_STEP = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class ArrayRequest:
    """An array to submit. ``request``: the session of each element. ``name``: of the pipeline."""

    request: SessionSpec | TemplateStart
    array: str
    name: str

    @classmethod
    def of(
        cls, cli: Cli, request: SessionSpec | TemplateStart, array: str, name: str | None
    ) -> ArrayRequest:
        """Raises ``InvalidInput`` for an array that is none."""
        try:
            Array.parse(array)
        except ValueError as error:
            raise InvalidInput(
                f"--array: {error}", field="array", next_step="moorage run --array 0-99%10 -- CMD"
            ) from None
        named = name or getattr(request, "name", None)
        return cls(request, array, named or f"array-{cli.clock.new_id()[-8:]}")

    async def pipeline(self, client: Client) -> PipelineSpec:
        """The pipeline of one step that runs the array. Raises ``InvalidInput`` for a parameter
        that its template lacks."""
        from moorage.cli.session_options import TemplateStart

        step: dict[str, Any] = {
            "name": self.name if _STEP.fullmatch(self.name) else "element",
            "array": self.array,
        }
        if isinstance(self.request, TemplateStart):
            _, _, values = await self.request.read(client)
            overrides = {k: v for k, v in self.request.overrides.items() if k != "name"}
            step |= {"template": self.request.ref, "parameters": values, "overrides": overrides}
        else:
            step["spec"] = self.request.model_copy(update={"name": None})

        return PipelineSpec(name=self.name, steps=[Step.model_validate(step)])


async def submit(cli: Cli, client: Client, request: ArrayRequest, *, force: bool) -> PipelineView:
    """Submit the array. Retries once if no answer arrives; the idempotency key ensures a single
    array."""
    pipeline = await request.pipeline(client)
    key = cli.clock.new_id()
    try:
        made = await client.pipelines.create(pipeline, force=force, idempotency_key=key)
    except Unreachable:
        made = await client.pipelines.create(pipeline, force=force, idempotency_key=key)

    for warning in made.warnings:
        cli.note(printable(f"warning: {warning}", one_line=True))
    return made


async def follow(cli: Cli, client: Client, made: PipelineView) -> PipelineView:
    """The pipeline with its steps, once all of them have ended. Shows its progress on a
    terminal."""
    spinner = cli.err.status(_progress(made)) if cli.err_is_terminal else None
    if spinner:
        spinner.start()

    states = client.events.states(
        lambda: client.pipelines.get(made.id, steps=False), "session", clock=cli.clock
    )
    try:
        async with aclosing(states) as found:
            async for view in found:
                if spinner:
                    spinner.update(_progress(view))
                if view.state not in (StepState.PENDING, StepState.RUNNING):
                    break
                await asyncio.sleep(GATHER_S)
    finally:
        if spinner:
            spinner.stop()

    return await client.pipelines.get(made.id)


def exit_code(cli: Cli, view: PipelineView) -> int:
    """0 if all elements succeeded, otherwise that of the element that failed first. Says which
    failed."""
    others = [step for step in view.steps if step.state is not StepState.SUCCEEDED]
    if not others:
        return 0

    first = view.first_failure
    failed = [step for step in others if step.state is StepState.FAILED] or others
    named = ", ".join(_ended(step) for step in failed[:NAMED])
    more = f" and {len(failed) - NAMED} others" if len(failed) > NAMED else ""
    cli.note(
        printable(
            f"moorage: {len(others)} of {len(view.steps)} elements of {view.name} did not succeed: "
            f"{named}{more}; `moorage logs '{label(failed[0])}'` shows the log of the first, "
            f"`moorage pipelines retry {view.name}` runs them again",
            one_line=True,
        )
    )
    if first is None:
        return exit_codes.FAILURE
    return exit_codes.of_failure(Reason(first.reason), first.detail, first.exit_code)


def _ended(step: StepView) -> str:
    how = str(step.state) if step.exit_code is None else f"exit code {step.exit_code}"
    return f"{step.index} ({how})"


def _progress(view: PipelineView) -> Any:
    from rich.text import Text

    return Text(printable(f"{view.name}: {counts_text(view.counts)}", one_line=True))


def say_what_remains(cli: Cli, made: list[PipelineView], *, stop: bool) -> None:
    """After an interrupt: stop the array if that is wanted, or say how to."""
    if not made:
        cli.note("moorage: interrupted; `moorage ps` shows whether the array was created")
        return

    name = made[0].name
    if stop:
        cli.run(lambda client: client.pipelines.stop(made[0].id))
        cli.note(f"moorage: {name} is being stopped; `moorage describe {name}` shows its state")
    else:
        cli.note(
            f"moorage: {name} keeps running; `moorage describe {name}` shows its elements, "
            f"`moorage stop {name}` stops them, as --stop-on-interrupt would have"
        )
