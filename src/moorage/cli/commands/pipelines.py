"""``moorage pipelines``: graphs of sessions that are submitted as one request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output, pipeline_table
from moorage.cli.app import list_command, noun
from moorage.cli.commands.apply import File, read_file
from moorage.cli.completion import names_of
from moorage.cli.context import Cli, Output, command
from moorage.cli.exit_codes import INTERRUPTED
from moorage.cli.output import LogWriter
from moorage.cli.pipeline_logs import PipelineLog, check_followed, chosen
from moorage.common.model.errors import InvalidInput
from moorage.common.model.pipelines import PipelineSpec, StepState

if TYPE_CHECKING:
    from moorage.common.views.pipelines import PipelineView
    from moorage.sdk import Client

# The width for which output that is no terminal is drawn.
_PLAIN_WIDTH = 80

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
    if dry_run:
        _print(cli, cli.run(lambda client: client.pipelines.plan(pipeline)), whole=True)
    else:
        _print(cli, cli.run(lambda client: client.pipelines.create(pipeline, force=force)))


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
    elements: Annotated[
        bool, typer.Option("--elements", help="One row for each element of an array.")
    ] = False,
) -> None:
    """Show the steps of a pipeline, and its first failure with the command that shows its log.

    \b
    Examples:
      moorage pipelines describe train
      moorage pipelines describe train --elements
      moorage pipelines describe train --svg > train.svg
    """
    if svg:
        print(cli.run(lambda client: client.pipelines.draw(ref)))
        return

    print_pipeline(cli, cli.run(lambda client: client.pipelines.get(ref)), elements=elements)


@command(pipelines, "logs")
def pipeline_logs(
    cli: Cli,
    ref: Ref,
    step: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="Only this step, or this element, like part[3]."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only steps that failed.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the logs of steps that have started.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=1, help="Print only the last N lines of each log.")
    ] = None,
) -> None:
    """Print the logs of the steps that have started, in the order of the graph.

    If there are several, each line starts with the name of its step.

    \b
    Examples:
      moorage pipelines logs train --failed --tail 20
      moorage pipelines logs train --step part
    """
    sink = LogWriter(sys.stdout)

    async def work(client: Client) -> None:
        view = await client.pipelines.get(ref)
        steps = chosen(view, step, failed=failed)
        check_followed(len(steps) if follow else 0, "choose steps with --step or --failed")

        if not steps:
            cli.note(f"no step of {view.name} has {'failed' if failed else 'started'}")
        await PipelineLog(cli, client, steps, sink).copy(follow=follow, tail=tail)
        sink.write(b"", final=True)

    try:
        cli.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


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
    if whole:
        print_pipeline(cli, view)
    elif cli.json:
        cli.print_json(view)
    else:
        print(view.name)


def print_pipeline(cli: Cli, view: PipelineView, *, elements: bool = False) -> None:
    """Print a pipeline with its steps. ``elements``: one row for each element of an array."""
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    else:
        print(
            output.printable(
                f"{view.name} ({view.id or 'not created'}): {view.state}, {_progress(view)}"
            )
        )
        width = cli.out.width if cli.out.is_terminal else _PLAIN_WIDTH
        shown = pipeline_table.rows(view.steps, cli.clock.now(), width, elements=elements)
        output.print_table(cli.out, pipeline_table.COLUMNS, shown, pipeline_table.DROPPED_FIRST)
        for line in pipeline_table.failure_lines(view):
            print(output.printable(line, one_line=True))


def _row(cli: Cli, view: PipelineView) -> tuple[str, ...]:
    age = output.format_age(cli.clock.now(), view.created_at)
    return view.name, str(view.state), _progress(view), view.user, view.project, age


def _progress(view: PipelineView) -> str:
    total = sum(view.counts.values())
    ended = total - view.counts.get(StepState.PENDING, 0) - view.counts.get(StepState.RUNNING, 0)
    return f"{ended}/{total} ended"
