"""``moorage requeue``: returns running batch sessions to the queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.completion import session_names
from moorage.cli.context import Cli, Output, command

if TYPE_CHECKING:
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME...", help="Sessions by name or id.", autocompletion=session_names),
]


@command(app)
def requeue(cli: Cli, names: Names) -> None:
    """Stop batch sessions, and return them to the queue.

    Each program is stopped as by `moorage stop`, and starts from its beginning, as a new attempt,
    once it has ended. This counts no retry. If one of the names is unknown, nothing is requeued.

    \b
    Examples:
      moorage requeue sweep-3
    """
    change_each(cli, names, lambda client, ref: client.sessions.requeue(ref), "requeued")


def change_each(
    cli: Cli,
    names: Sequence[str],
    change: Callable[[Client, str], Awaitable[SessionView]],
    done: str,
) -> None:
    """Look up all sessions, then change each and print what was done."""

    async def work(client: Client) -> list[SessionView]:
        found = [await client.sessions.get(name) for name in names]
        return [await change(client, view.id) for view in found]

    views = cli.run(work)
    if cli.json:
        cli.print_json(views[0] if len(views) == 1 else {done.partition(";")[0]: views})
        return

    for view in views:
        print(view.name if cli.output is Output.NAME else f"{view.name} {done}")
