"""``moorage sessions``: lists sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moorage.cli.app import list_command, noun
from moorage.cli.commands.ps import (
    All,
    ListOutput,
    Pipeline,
    Selector,
    Statuses,
    named_statuses,
    plainly,
    session_list,
    session_table,
    show,
)
from moorage.cli.context import Cli
from moorage.cli.lookup import all_sessions

if TYPE_CHECKING:
    from moorage.common.views.resources import SessionView

sessions = noun(
    "sessions",
    help="Sessions. `ps` lists them with the endpoints; commands at the root act on them.",
)


@list_command(sessions)
def list_sessions(
    cli: Cli,
    all_: All = False,
    status: Statuses = None,
    selector: Selector = None,
    pipeline: Pipeline = None,
) -> None:
    """List sessions, including replicas.

    \b
    Examples:
      moorage sessions list --all
      moorage sessions list --status SUCCEEDED
    """
    wanted = named_statuses(all_, status)

    def listing(found: list[SessionView]) -> ListOutput:
        return ListOutput(
            [view.name for view in found], [session_table(cli, found)], {"sessions": found}
        )

    def plain() -> ListOutput:
        return listing(*cli.read_lists(session_list(wanted, selector, pipeline)))

    def complete() -> ListOutput:
        return listing(
            cli.run(
                lambda client: all_sessions(client, wanted, selector=selector, pipeline=pipeline),
            )
        )

    show(cli, plainly(cli, plain) or complete())
