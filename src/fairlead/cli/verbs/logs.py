"""``fairlead logs``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fairlead.cli.app import app
from fairlead.cli.context import Cli, verb
from fairlead.cli.failures import INTERRUPTED
from fairlead.cli.verbs.find import find
from fairlead.common.api import EndpointView
from fairlead.common.errors import NotFound
from fairlead.sdk import Client


@verb(app)
def logs(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="A session's name or id, or an endpoint.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    tail: Annotated[int | None, typer.Option(min=1, help="Only so many last lines.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Of this attempt; else of the newest.")] = None,
    kernel: Annotated[str | None, typer.Option(help="In a cluster: of this kernel, like sub1.")] = None,
) -> None:
    """Print the log of a session; of an endpoint, that of its newest replica.

    \b
    Examples:
      fairlead logs tiny --tail 20
      fairlead logs -f train-7
      fairlead logs train-7 --attempt 1
      fairlead logs train-7 --kernel sub1
    """

    async def work(client: Client) -> None:
        found = await find(client, name)
        ref = found.id
        if isinstance(found, EndpointView):
            replica = _newest(found)
            cli.say(f"log of {replica[1]}, the newest replica of {found.name}")
            ref = replica[0]
        async for piece in client.logs(ref, tail=tail, follow=follow, attempt=attempt, kernel=kernel):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()

    try:
        cli.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _newest(view: EndpointView) -> tuple[str, str]:
    replica = max(view.sessions, key=lambda replica: replica.session_id, default=None)
    if replica is None:
        raise NotFound(
            f"{view.name} has no replica yet, so there is no log",
            next_step=f"`fairlead describe {view.name}`",
        )
    return replica.session_id, replica.name
