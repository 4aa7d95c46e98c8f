"""``moorage managers``: the managers of a database, their leader and their connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moorage.cli import output
from moorage.cli.app import list_command, noun
from moorage.cli.context import Cli, Output

if TYPE_CHECKING:
    from moorage.common.views.managers import ManagerView

managers = noun("managers", help="Managers of this database. For administrators and auditors.")


@list_command(managers)
def list_managers(cli: Cli) -> None:
    """List the managers of this database, with the leader and the connections of each.

    \b
    Examples:
      moorage managers
      moorage managers -o json
    """
    found = cli.run(lambda client: client.managers.list())
    if cli.json:
        cli.print_json({"managers": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.link)
    else:
        columns = ("LINK", "ROLE", "VERSION", "STARTED", "AGENTS", "PROXIES", "ANSWERS")
        output.print_table(cli.out, columns, [_row(cli, view) for view in found])


def _row(cli: Cli, view: ManagerView) -> tuple[str, ...]:
    return (
        view.link,
        f"leader, term {view.term}" if view.leader else "follower",
        view.version,
        f"{output.format_age(cli.clock.now(), view.started_at)} ago",
        str(view.agents),
        ", ".join(view.proxies) or "none",
        "yes" if view.answers else "",
    )
