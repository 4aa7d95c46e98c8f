"""``moorage logs``: the log of a session."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli.app import app
from moorage.cli.cluster_logs import ClusterLog, note_loss
from moorage.cli.completion import kernel_names, workload_names
from moorage.cli.context import Cli, command
from moorage.cli.exit_codes import INTERRUPTED
from moorage.cli.lookup import find
from moorage.cli.output import LogWriter
from moorage.cli.times import past
from moorage.common.model.errors import NotFound

if TYPE_CHECKING:
    from moorage.common.views.endpoints import EndpointView
    from moorage.sdk import Client


@command(app)
def logs(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(
            help="A session's name or id, or an endpoint.", autocompletion=workload_names
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
    found = await find(client, name)
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


def _newest(view: EndpointView) -> tuple[str, str]:
    replica = max(view.sessions, key=lambda replica: replica.session_id, default=None)
    if replica is None:
        raise NotFound(
            f"{view.name} has no replica yet, so it has no log",
            next_step=f"`moorage describe {view.name}`",
        )
    return replica.session_id, replica.name
