"""``moorage workspace``: what sessions have kept on the nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli import render
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, verb
from moorage.common.model.slots import format_amount
from moorage.common.views.resources import WorkspaceView

workspace = typer.Typer(no_args_is_help=True)
app.add_typer(workspace, name="workspace", help="Directories that sessions have kept on their nodes.")


@verb(workspace, "ls")
def list_workspaces(cli: Cli) -> None:
    """List what sessions begun with --workspace keep have left, and where.

    \b
    Examples:
      moorage workspace ls
    """
    found = cli.run(lambda client: client.list_workspaces())
    if cli.json:
        cli.print_json(found)
    elif cli.output is Output.NAME:
        for one in found.items:
            print(one.session_id)
    elif not found.items:
        cli.say("nothing is kept; with --workspace keep, `run` and `start` begin sessions that keep theirs")
    else:
        now = cli.clock.now()
        columns = ("SESSION", "AGENT", "SIZE", "CHANGED", "IN USE", "ID")
        rows = [
            (
                one.session,
                one.agent_id,
                format_amount("mem", one.size),
                f"{render.show_age(now, one.changed_at)} ago",
                "yes" if one.in_use else "no",
                one.session_id,
            )
            for one in found.items
        ]
        render.print_table(cli.out, columns, rows)
    _of_silent(cli, found.silent)


@verb(workspace, "rm")
def remove_workspaces(
    cli: Cli, session: Annotated[str, typer.Argument(help="Name or id of a session that has ended.")]
) -> None:
    """Remove what a session has kept, on all nodes where it did. It cannot be had back.

    \b
    Examples:
      moorage workspace rm train-7
    """
    gone = cli.run(lambda client: client.remove_workspace(session))
    if cli.json:
        cli.print_json(gone)
    else:
        for one in gone.items:
            print(_line(one) if cli.output is not Output.NAME else one.session_id)
    _of_silent(cli, gone.silent)


def _line(one: WorkspaceView) -> str:
    return render.printable(
        f"{one.session or one.session_id} on {one.agent_id}: {format_amount('mem', one.size)}", one_line=True
    )


def _of_silent(cli: Cli, silent: list[str]) -> None:
    if silent:
        names = render.printable(", ".join(silent), one_line=True)
        cli.say(f"moorage: these agents did not answer, and may keep more: {names}")
