"""``moorage stop``: ends a session, or deletes an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.completion import workload_names
from moorage.cli.context import Cli, command
from moorage.cli.errors import INTERRUPTED
from moorage.cli.lookup import find, live_sessions
from moorage.cli.session_options import Timeout
from moorage.cli.wait import until_ended
from moorage.common.views.endpoints import EndpointView
from moorage.common.views.resources import SessionView

if TYPE_CHECKING:
    from moorage.sdk import Client


@command(app)
def stop(
    cli: Cli,
    name: Annotated[
        str, typer.Argument(help="An endpoint, or a session's name or id.", autocompletion=workload_names)
    ],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")] = True,
    timeout: Timeout = None,
) -> None:
    """Stop a session, or delete an endpoint with all its replicas.

    \b
    Examples:
      moorage stop tiny
      moorage stop batch-1a2b3c4d --no-wait
    """

    async def work(client: Client) -> EndpointView | SessionView:
        found = await find(client, name)
        if isinstance(found, EndpointView):
            # Read before the delete: afterwards the name may belong to a new endpoint of somebody else.
            replicas = await live_sessions(client, endpoint=found.name)
            deleted = await client.delete_endpoint(found.name)
            if wait:
                await until_ended(client, replicas, clock=cli.clock, timeout_s=timeout)
            return deleted
        stopped = await client.stop_session(found.id)
        if wait:
            [stopped] = await until_ended(client, [stopped], clock=cli.clock, timeout_s=timeout)
        return stopped

    try:
        view = cli.run(work)
    except KeyboardInterrupt:
        cli.note("moorage: it keeps stopping; `moorage ps` shows it")
        raise typer.Exit(INTERRUPTED) from None
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)
