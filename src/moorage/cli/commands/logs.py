"""``moorage logs``: the log of a session."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli.app import app
from moorage.cli.array_elements import find_elements, find_pipeline
from moorage.cli.cluster_logs import ClusterLog, note_loss
from moorage.cli.completion import kernel_names, workload_names
from moorage.cli.context import Cli, command
from moorage.cli.exit_codes import INTERRUPTED
from moorage.cli.lookup import find
from moorage.cli.output import LogWriter
from moorage.cli.times import past
from moorage.common.model.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from moorage.common.views.endpoints import EndpointView
    from moorage.common.views.pipelines import StepView
    from moorage.sdk import Client


@command(app)
def logs(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(
            help="A session's name or id, an endpoint, an array or another pipeline, or elements "
            "of an array, like sweep[3] or sweep[0-9].",
            autocompletion=workload_names,
        ),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the session ends.")
    ] = False,
    tail: Annotated[int | None, typer.Option(min=1, help="Print only the last N lines.")] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Show the log of this attempt. Default: the newest.")
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="In a cluster: only the log of this kernel, like sub1.",
            autocompletion=kernel_names,
        ),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Print the time in front of each line (UTC).")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION|TIME",
            help="Only lines written since this time: 10m (ago), 13:00, or a date.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Also print control characters on a terminal, such as colours and progress bars.",
        ),
    ] = False,
) -> None:
    """Print the log of a session, or of the newest replica of an endpoint.

    Each line of a cluster's log starts with the name of its kernel.

    On a terminal, control characters are escaped and colours are left out, so that a program's
    output cannot control the terminal. Files and pipes get the log unchanged.

    \b
    Examples:
      moorage logs tiny --tail 20
      moorage logs -f train-7
      moorage logs train-7 --attempt 1
      moorage logs train-7 --kernel sub1
      moorage logs -f train-7 --timestamps --since 10m
    """

    log = LogWriter(sys.stdout, raw=raw)
    since_at = None if since is None else past(since, cli.clock.now(), "--since")

    async def work(client: Client) -> None:
        given = {"tail": tail, "follow": follow, "timestamps": timestamps, "since": since_at}
        await _print(cli, client, name=name, log=log, attempt=attempt, kernel=kernel, given=given)

    try:
        cli.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


async def _print(
    cli: Cli,
    client: Client,
    name: str,
    log: LogWriter,
    *,
    attempt: int | None,
    kernel: str | None,
    given: dict[str, Any],
) -> None:
    """Print a log. ``given``: arguments shared by logs of single kernels and of clusters."""
    try:
        found = await find(client, name)
    except (NotFound, InvalidInput):
        if (steps := await _steps(client, name, follow=given["follow"])) is None:
            raise
        from moorage.cli.pipeline_logs import PipelineLog

        log_of_steps = PipelineLog(cli, client, steps, log)
        await log_of_steps.copy(follow=given["follow"], tail=given["tail"])
        log.write(b"", final=True)
        return

    ref = found.id
    from moorage.common.views.endpoints import EndpointView

    if isinstance(found, EndpointView):
        replica = _newest(found)
        cli.note(f"log of {replica[1]}, the newest replica of {found.name}")
        ref = replica[0]
    elif kernel is None and found.spec.size > 1:
        await ClusterLog(
            cli, client, view=found, sink=log, attempt=attempt or found.attempt, **given
        ).copy()
        return

    told = partial(note_loss, cli, name)
    async for piece in client.sessions.logs(
        ref, attempt=attempt, kernel=kernel, on_loss=told, **given
    ):
        log.write(piece)

    log.write(b"", final=True)


async def _steps(client: Client, name: str, *, follow: bool) -> list[StepView] | None:
    """The steps of a pipeline, or the named elements, that have started; None if there is no such
    pipeline. Raises ``InvalidInput`` if too many are followed."""
    from moorage.cli.pipeline_logs import check_followed, chosen

    view = await find_pipeline(client, name)
    if view is not None:
        steps = chosen((await client.pipelines.get(view.id)), None, failed=False)
    elif elements := await find_elements(client, name):
        place = elements[0].pipeline
        assert place is not None
        ids = {session.id for session in elements}
        view = await client.pipelines.get(place.id)
        steps = [step for step in chosen(view, None, failed=False) if step.session_id in ids]
    else:
        return None

    check_followed(len(steps) if follow else 0, "name some elements, such as sweep[0-9]")
    return steps


def _newest(view: EndpointView) -> tuple[str, str]:
    replica = max(view.sessions, key=lambda replica: replica.session_id, default=None)
    if replica is None:
        raise NotFound(
            f"{view.name} has no replica yet, so it has no log",
            next_step=f"`moorage describe {view.name}`",
        )
    return replica.session_id, replica.name
