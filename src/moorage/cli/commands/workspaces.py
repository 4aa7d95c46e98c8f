"""``moorage workspaces``: directories that sessions keep on their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.completion import workspace_sessions
from moorage.cli.context import Cli, Output, command
from moorage.common.model.slots import format_amount

if TYPE_CHECKING:
    from moorage.common.views.workspaces import WorkspaceView

workspaces = noun("workspaces", help="Directories that sessions keep on their nodes.")


@list_command(workspaces)
def list_workspaces(cli: Cli) -> None:
    """List the workspaces of sessions created with --workspace keep, and their agents.

    \b
    Examples:
      moorage workspaces
    """
    found = cli.run(lambda client: client.workspaces.list())
    if cli.json:
        cli.print_json(found)
    elif cli.output is Output.NAME:
        for workspace in found.items:
            print(output.printable(workspace.session_id, one_line=True))
    elif not found.items:
        cli.note("there is no workspace; `run` and `start` keep one with --workspace keep")
    else:
        now = cli.clock.now()
        columns = ("SESSION", "AGENT", "SIZE", "CHANGED", "IN USE", "ID")
        rows = [
            (
                workspace.session,
                workspace.agent_id,
                format_amount("mem", workspace.size),
                f"{output.format_age(now, workspace.changed_at)} ago",
                "yes" if workspace.in_use else "no",
                workspace.session_id,
            )
            for workspace in found.items
        ]
        output.print_table(cli.out, columns, rows)

    _warn_of_silent(cli, found.silent)


@command(workspaces)
def delete(
    cli: Cli,
    session: Annotated[
        str,
        typer.Argument(
            help="Name or id of a session that has ended.", autocompletion=workspace_sessions
        ),
    ],
) -> None:
    """Delete the workspace of a session on every node that keeps it. This cannot be undone.

    \b
    Examples:
      moorage workspaces delete train-7
    """
    deleted = cli.run(lambda client: client.workspaces.delete(session))
    if cli.json:
        cli.print_json(deleted)
    else:
        for workspace in deleted.items:
            print(_line(workspace) if cli.output is not Output.NAME else workspace.session_id)

    _warn_of_silent(cli, deleted.silent)


def _line(workspace: WorkspaceView) -> str:
    name = workspace.session or workspace.session_id
    size = format_amount("mem", workspace.size)
    return output.printable(f"{name} on {workspace.agent_id}: {size}", one_line=True)


def _warn_of_silent(cli: Cli, agents: list[str]) -> None:
    if agents:
        names = output.printable(", ".join(agents), one_line=True)
        cli.note(f"moorage: these agents did not answer and may keep more: {names}")
