"""``moorage audit``: administrative writes with their actors and changes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output
from moorage.cli.app import app
from moorage.cli.completion import user_names
from moorage.cli.context import Cli, command, duration_option

if TYPE_CHECKING:
    from moorage.common.views.audit import AuditEntry

COLUMNS = ("AT", "ACTOR", "FROM", "ACTION", "NAME", "STATUS")


@command(app)
def audit(
    cli: Cli,
    actor: Annotated[
        str | None, typer.Option(help="Only writes by this actor: key:NAME or user:NAME.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            help="Only writes by this user's keys and console sessions.", autocompletion=user_names
        ),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(help="Only writes to this kind of resource, such as groups or keys."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Only writes to the resource of this name.")
    ] = None,
    last: Annotated[
        float | None,
        duration_option(
            "Only writes in this period until now.", "--last", min_s=1, show_default="all"
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=500, help="The most writes to list.")
    ] = 50,
) -> None:
    """List administrative writes, newest first. For administrators and auditors.

    `-o json` shows the resource before and after each write.

    \b
    Examples:
      moorage audit
      moorage audit --resource groups --name default
      moorage audit --user ann --last 7d -o json
    """
    since = cli.clock.now() - timedelta(seconds=last) if last is not None else None
    found = cli.run(
        lambda client: client.audit.list(
            actor=actor, user=user, resource=resource, name=name, since=since, limit=limit
        )
    )
    if cli.json:
        cli.print_json({"audit": found})
    else:
        output.print_table(cli.out, COLUMNS, [_row(entry) for entry in found])


def _row(entry: AuditEntry) -> tuple[str, ...]:
    status = "unknown" if entry.status is None else entry.code or str(entry.status)
    at = entry.at.strftime("%Y-%m-%d %H:%M:%S")
    return at, entry.actor, entry.from_address, entry.action, entry.name, status
