"""``moorage pipelines``: graphs of sessions that are submitted as one request."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.commands.apply import File, read_file
from moorage.cli.completion import names_of
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput
from moorage.common.model.pipelines import After, PipelineSpec, StepState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moorage.common.views.pipelines import PipelineView, StepView

pipelines = noun(
    "pipelines", help="Pipelines: graphs of sessions that are submitted as one request."
)

Ref = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="Id of a pipeline, or a name, which means its newest.",
        autocompletion=names_of("pipelines"),
    ),
]


@command(pipelines, "submit")
def submit_pipeline(
    cli: Cli,
    file: File,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate the pipeline without creating anything.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Run every step, even if an earlier result could be reused."),
    ] = False,
) -> None:
    """Submit a pipeline: all of its sessions are created, or none.

    \b
    Examples:
      moorage pipelines submit -f train.yaml
      moorage pipelines describe train
    """
    pipeline = PipelineSpec.model_validate(_read(file))
    view = cli.run(lambda client: client.pipelines.create(pipeline, dry_run=dry_run, force=force))
    _print(cli, view, whole=dry_run)


@list_command(pipelines)
def list_pipelines(cli: Cli) -> None:
    """List pipelines, newest first."""
    found = cli.run(lambda client: client.pipelines.list())
    if cli.json:
        cli.print_json({"pipelines": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    else:
        columns = ("NAME", "STATE", "STEPS", "USER", "PROJECT", "AGE")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])


@command(pipelines, "describe")
def describe_pipeline(
    cli: Cli,
    ref: Ref,
    svg: Annotated[
        bool, typer.Option("--svg", help="Print a picture of the graph as SVG.")
    ] = False,
) -> None:
    """Show a pipeline as a tree: its steps with their dependencies and progress.

    \b
    Examples:
      moorage pipelines describe train
      moorage pipelines describe train --svg > train.svg
    """
    if svg:
        print(cli.run(lambda client: client.pipelines.draw(ref)))
        return

    _print(cli, cli.run(lambda client: client.pipelines.get(ref)), whole=True)


@command(pipelines, "stop")
def stop_pipeline(cli: Cli, ref: Ref) -> None:
    """Stop all steps that have not ended."""
    _print(cli, cli.run(lambda client: client.pipelines.stop(ref)))


@command(pipelines, "retry")
def retry_pipeline(cli: Cli, ref: Ref) -> None:
    """Run failed and stopped steps again, and the ended steps after them. Other steps are kept."""
    _print(cli, cli.run(lambda client: client.pipelines.retry(ref)))


def _read(file: str) -> object:
    """Read a pipeline. Raises ``InvalidInput`` if the file is not a single YAML document."""
    import yaml

    from moorage.cli import yaml_input

    try:
        return yaml_input.load(read_file(file))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"--file {file} is not one YAML document: {error}",
            next_step="correct it at that position",
        ) from None


def _print(cli: Cli, view: PipelineView, *, whole: bool = False) -> None:
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME or not whole:
        print(view.name)
    else:
        print(
            output.printable(
                f"{view.name} ({view.id or 'not created'}): {view.state}, {_progress(view)}"
            )
        )
        for line in tree(view.steps):
            print(output.printable(line, one_line=False))


def _row(cli: Cli, view: PipelineView) -> tuple[str, ...]:
    age = output.format_age(cli.clock.now(), view.created_at)
    return view.name, str(view.state), _progress(view), view.user, view.project, age


def _progress(view: PipelineView) -> str:
    total = sum(view.counts.values())
    ended = total - view.counts.get(StepState.PENDING, 0) - view.counts.get(StepState.RUNNING, 0)
    return f"{ended}/{total} ended"


def tree(steps: Sequence[StepView]) -> list[str]:
    """One line per step, indented by the length of the longest path to it. An array is one line
    with its progress."""
    depths: dict[str, int] = {}
    lines = []
    for name, group in groupby(steps, key=lambda step: step.name):
        elements = list(group)
        first = elements[0]
        depths[name] = 1 + max((depths.get(after.step, -1) for after in first.after), default=-1)
        after = f" after {', '.join(map(_condition, first.after))}" if first.after else ""
        lines.append(
            f"{'  ' * depths[name]}{'└─ ' if first.after else ''}{name} {_state(elements)}{after}"
        )

    return lines


def _condition(after: After) -> str:
    if after.on == "success" and not after.of_any:
        return after.step
    return f"{after.step} ({after.on}{f' of {after.of}' if after.of else ''})"


def _state(elements: Sequence[StepView]) -> str:
    if elements[0].index is None:
        step = elements[0]
        again = f", run {step.run}" if step.run > 1 else ""
        why = f": {step.reason}" if step.state in (StepState.FAILED, StepState.SKIPPED) else ""
        shown = output.progress_text(step.progress) if step.state is StepState.RUNNING else ""
        reused = ", reused" if step.adopted_from else ""

        return f"[{step.state}{' ' if shown else ''}{shown}{again}{reused}{why}]"

    states = [step.state for step in elements]
    counts = ", ".join(f"{states.count(state)} {state}" for state in StepState if state in states)
    return f"[{elements[0].index}-{elements[-1].index}: {counts}]"
