"""What there is: ``ps``, ``describe``, ``agents``, ``groups``."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypeVar

import typer

from moorage.cli import render
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, verb
from moorage.cli.verbs import details
from moorage.cli.verbs.find import find
from moorage.cli.waiting import all_endpoints, all_sessions, live_sessions
from moorage.common.views.resources import EndpointView
from moorage.sdk import Client

A = TypeVar("A")
B = TypeVar("B")


@verb(app)
def ps(
    cli: Cli,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also sessions that have ended.")] = False,
) -> None:
    """List endpoints and sessions.

    \b
    Examples:
      moorage ps
      moorage ps --all -o wide
      moorage ps -o json | jq '.sessions[].name'
    """

    async def work(client: Client) -> Any:
        sessions = all_sessions(client) if all_ else live_sessions(client)
        return await asyncio.gather(all_endpoints(client), sessions)

    endpoints, sessions = cli.run(work)
    now, wide = cli.clock.now(), cli.wide
    if cli.json:
        cli.print_json({"endpoints": endpoints, "sessions": sessions})
    elif cli.output is Output.NAME:
        for view in (*endpoints, *(s for s in sessions if s.endpoint is None)):
            print(view.name)
    elif not endpoints and not sessions:
        cli.say("nothing is here yet; `moorage serve MODEL` serves a model, `moorage run -- CMD` runs a job")
    else:
        if endpoints:
            columns = render.ENDPOINT_COLUMNS + (render.ENDPOINT_WIDE if wide else ())
            render.print_table(cli.out, columns, [render.endpoint_row(e, now, wide=wide) for e in endpoints])
        if endpoints and sessions:
            cli.out.print()
        if sessions:
            columns = render.SESSION_COLUMNS + (render.SESSION_WIDE if wide else ())
            render.print_table(cli.out, columns, [render.session_row(s, now, wide=wide) for s in sessions])


@verb(app)
def describe(
    cli: Cli, name: Annotated[str, typer.Argument(help="An endpoint, or a session's name or id.")]
) -> None:
    """Everything about one endpoint or session: state, story, why it waits or failed, last log lines.

    \b
    Examples:
      moorage describe tiny
      moorage describe batch-1a2b3c4d -o json
    """

    async def work(client: Client) -> Any:
        found = await find(client, name)
        if isinstance(found, EndpointView):
            refs = [replica.session_id for replica in found.sessions]
        else:
            refs = [found.id]
        stories, used = await asyncio.gather(
            asyncio.gather(*(client.history(ref) for ref in refs)),
            asyncio.gather(*(client.session_stats(ref) for ref in refs)),
        )
        return found, dict(zip(refs, stories, strict=True)), dict(zip(refs, used, strict=True))

    found, stories, used = cli.run(work)
    if cli.output is Output.NAME:
        print(found.name)
    elif isinstance(found, EndpointView):
        if cli.json:
            cli.print_json({"endpoint": found, "histories": stories, "stats": used})
        else:
            details.print_endpoint(cli.out, found, stories, used, cli.clock.now())
    elif cli.json:
        cli.print_json({"session": found, "history": stories[found.id], "stats": used[found.id]})
    else:
        details.print_session(cli.out, found, stories[found.id], used[found.id], cli.clock.now())
