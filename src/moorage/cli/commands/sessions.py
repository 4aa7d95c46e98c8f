"""``moorage sessions``: lists sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moorage.cli.app import list_command, noun
from moorage.cli.commands.ps import (
    All,
    Group,
    ListOutput,
    Mine,
    Pipeline,
    Project,
    Quiet,
    Search,
    Selector,
    SessionFilter,
    SortedBy,
    Statuses,
    User,
    named_statuses,
    plainly,
    session_table,
    show,
)
from moorage.cli.context import Cli
from moorage.cli.list_order import parse_order

if TYPE_CHECKING:
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

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
    user: User = None,
    mine: Mine = False,
    project: Project = None,
    group: Group = None,
    search: Search = None,
    sort: SortedBy = None,
    quiet: Quiet = False,
) -> None:
    """List sessions, including replicas.

    \b
    Examples:
      moorage sessions list --all
      moorage sessions list --status SUCCEEDED
    """
    if quiet:
        cli.print_only_names()

    wanted = SessionFilter(
        statuses=named_statuses(all_, status),
        selector=selector,
        pipeline=pipeline,
        user=user,
        mine=mine,
        project=project,
        group=group,
        search=search or None,
        sort=None if sort is None else parse_order(sort),
    ).checked()

    def listing(found: list[SessionView]) -> ListOutput:
        return ListOutput(
            [view.name for view in found], [session_table(cli, found)], {"sessions": found}
        )

    def plain() -> ListOutput:
        (found,) = cli.read_lists(wanted.resolved_plainly(cli).session_list)
        return listing(wanted.sorted_sessions(found))

    async def work(client: Client) -> list[SessionView]:
        return await (await wanted.resolved(client)).sessions(client)

    show(cli, plainly(cli, plain) or listing(cli.run(work)))
