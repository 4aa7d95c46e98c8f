"""``moorage reload``: asks the programs of sessions to reload their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.completion import workload_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.cli.output import printable
from moorage.cli.session_options import Timeout
from moorage.common.model.status import Status

if TYPE_CHECKING:
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client


@command(app)
def reload(
    cli: Cli,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Running sessions by name or id; an endpoint stands for its replicas.",
            autocompletion=workload_names,
        ),
    ],
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the programs have acknowledged.")
    ] = True,
    timeout: Timeout = None,
) -> None:
    """Ask the programs of sessions to reload their settings.

    The option --reload of `run`, `start` and `serve` selects how: `--reload HUP` sends a signal,
    `--reload /-/reload` a POST request. If one of the names is unknown, nothing is reloaded. The
    exit code is 1 if a program has not reloaded.

    \b
    Examples:
      moorage reload gateway
      moorage reload gateway api --no-wait
    """
    try:
        with terminated_like_ctrl_c() as interrupted:
            views = cli.run(
                lambda client: _reload(cli, client, names=names, wait=wait, timeout_s=timeout)
            )
    except KeyboardInterrupt:
        cli.note(
            f"moorage: they keep reloading; `moorage describe {names[0]}` shows the progress of one"
        )
        raise typer.Exit(interrupted.exit_code) from None

    failed = _failures(views)
    if cli.json:
        cli.print_json(views[0] if len(views) == 1 else {"reloaded": views})
    else:
        for view in views:
            if cli.output is Output.NAME or not any(view.name == name for name, _ in failed):
                print(view.name)

    for name, why in failed:
        cli.note(f"moorage: {name}: {printable(why, one_line=True)}")

    if failed:
        raise typer.Exit(1)


async def _reload(
    cli: Cli, client: Client, names: Sequence[str], wait: bool, *, timeout_s: float | None
) -> list[SessionView]:
    """Ask all sessions to reload before waiting for any of them."""
    from moorage.cli.lookup import find, live_sessions
    from moorage.cli.wait import until_reloaded
    from moorage.common.views.endpoints import EndpointView

    sessions: dict[str, SessionView] = {}
    for view in [await find(client, name) for name in names]:
        if isinstance(view, EndpointView):
            replicas = await live_sessions(client, endpoint=view.name)
            sessions |= {
                replica.id: replica for replica in replicas if replica.status is Status.RUNNING
            }
        else:
            sessions[view.id] = view

    asked = [await client.sessions.reload(session_id) for session_id in sessions]
    return (
        await until_reloaded(client, asked, clock=cli.clock, timeout_s=timeout_s) if wait else asked
    )


def _failures(views: Sequence[SessionView]) -> list[tuple[str, str]]:
    """The sessions with a kernel that has not reloaded, and the reason."""
    found = []
    for view in views:
        for kernel in view.kernels:
            if kernel.reload is None or kernel.reload.state in ("reloaded", "requested"):
                continue

            where = f" in {kernel.hostname}" if len(view.kernels) > 1 else ""
            why = kernel.reload.detail or "it ended before it acknowledged"
            found.append((view.name, f"{kernel.reload.state}{where}: {why}"))

    return found
