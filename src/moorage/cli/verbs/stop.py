"""``moorage stop`` and ``moorage scale``."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.app import app
from moorage.cli.context import Cli, verb
from moorage.cli.failures import INTERRUPTED
from moorage.cli.verbs.find import find
from moorage.cli.waiting import live_sessions, until_ended
from moorage.common.model.errors import InvalidInput
from moorage.common.views.resources import EndpointView, SessionView
from moorage.sdk import Client


@verb(app)
def stop(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="An endpoint, or a session's name or id.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has really ended.")] = True,
    timeout: Annotated[float | None, typer.Option(help="Longest wait in seconds; then exit 124.")] = None,
) -> None:
    """End a session, or remove an endpoint with all its replicas.

    \b
    Examples:
      moorage stop tiny
      moorage stop batch-1a2b3c4d --no-wait
    """

    async def work(client: Client) -> EndpointView | SessionView:
        found = await find(client, name)
        if isinstance(found, EndpointView):
            # Known before the delete: afterwards the name may belong to somebody else's new endpoint.
            replicas = await live_sessions(client, endpoint=found.name)
            gone = await client.delete_endpoint(found.name)
            if wait:
                await until_ended(client, replicas, clock=cli.clock, timeout_s=timeout)
            return gone
        stopped = await client.stop_session(found.id)
        if wait:
            [stopped] = await until_ended(client, [stopped], clock=cli.clock, timeout_s=timeout)
        return stopped

    try:
        view = cli.run(work)
    except KeyboardInterrupt:
        cli.say("moorage: it goes on stopping by itself; `moorage ps` shows it")
        raise typer.Exit(INTERRUPTED) from None
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)


@verb(app)
def scale(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="An endpoint.")],
    replicas: Annotated[int, typer.Argument(help="How many replicas; 0 unloads the model.")],
) -> None:
    """Change how many replicas an endpoint has. Also wakes one that was given up after failures.

    \b
    Examples:
      moorage scale tiny 3
    """
    if not 0 <= replicas <= 1000:
        raise InvalidInput(f"{replicas} replicas are not allowed", next_step="give a number from 0 to 1000")
    view = cli.run(lambda client: client.scale_endpoint(name, replicas))
    if cli.json:
        cli.print_json(view)
    else:
        print(f"{view.name} {view.ready}/{view.replicas}" if not _only_name(cli) else view.name)


def _only_name(cli: Cli) -> bool:
    return cli.output.value == "name"
