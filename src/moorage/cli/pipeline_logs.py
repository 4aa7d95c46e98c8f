"""Logs of a pipeline's steps, each line prefixed with its step if there are several."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from moorage.cli.cluster_logs import PrefixedLines, note_loss
from moorage.cli.output import LogWriter, printable
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.model.pipelines import StepState
from moorage.sdk import ApiError, Unreachable

if TYPE_CHECKING:
    from moorage.cli.context import Cli
    from moorage.common.views.pipelines import PipelineView, StepView
    from moorage.sdk import Client

# Each log that is followed holds one connection.
MAX_FOLLOWED = 50


def chosen(view: PipelineView, step: str | None, *, failed: bool) -> list[StepView]:
    """The steps whose logs are printed: those that have started, or failed.

    ``step``: a step, or an element such as ``part[3]``. Raises ``NotFound``."""
    found = [run for run in view.steps if step is None or step in (run.name, label(run))]
    if not found:
        names = ", ".join(dict.fromkeys(run.name for run in view.steps))
        raise NotFound(
            f"pipeline {view.name!r} has no step {step!r}",
            next_step=f"name one of its steps: {names[:500]}",
        )

    if failed:
        return [run for run in found if run.state is StepState.FAILED]
    return [run for run in found if run.started_at is not None]


def check_followed(logs: int, next_step: str) -> None:
    """Raise ``InvalidInput`` if these are more logs than can be followed."""
    if logs > MAX_FOLLOWED:
        raise InvalidInput(
            f"--follow would follow {logs} logs; {MAX_FOLLOWED} are allowed", next_step=next_step
        )


def label(step: StepView) -> str:
    return step.name if step.index is None else f"{step.name}[{step.index}]"


class PipelineLog:
    """Copies the logs of ``steps`` to ``sink``: one after the other, or with ``follow`` all at
    once."""

    def __init__(
        self, cli: Cli, client: Client, steps: Sequence[StepView], sink: LogWriter
    ) -> None:
        self._cli = cli
        self._client = client
        self._steps = steps
        self._sink = sink
        self._width = max((len(label(step)) for step in steps), default=0)

    async def copy(self, *, follow: bool, tail: int | None) -> None:
        """Copy all logs. A log that cannot be read is left out with a note."""
        if not follow:
            for step in self._steps:
                await self._copy(step, follow=False, tail=tail)
            return

        # Imported here because showing a command's help does not need it.
        from moorage.common.aio.tasks import cancel_and_wait, spawn

        tasks = [
            spawn(f"log.{label(step)}", self._copy(step, follow=True, tail=tail))
            for step in self._steps
        ]
        try:
            for task in tasks:
                await task
        finally:
            await cancel_and_wait(*tasks)

    async def _copy(self, step: StepView, *, follow: bool, tail: int | None) -> None:
        name = label(step)
        prefix = f"{name:<{self._width}} | " if len(self._steps) > 1 else ""
        lines = PrefixedLines(prefix)
        try:
            pieces = self._client.sessions.logs(
                step.session_id,
                follow=follow,
                tail=tail,
                on_loss=partial(note_loss, self._cli, name),
            )
            async for piece in pieces:
                self._sink.write(lines.feed(piece))
        except (ApiError, Unreachable) as error:
            self._cli.note(
                f"moorage: the log of {name} was not read ({printable(str(error), one_line=True)})"
            )

        self._sink.write(lines.feed(b"", final=True))
