"""``moorage stop``: stops sessions and deletes endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.array_elements import find_elements, find_pipeline, parse_elements
from moorage.cli.completion import user_names, workload_names
from moorage.cli.context import Cli, command
from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.cli.lookup import find, live_sessions
from moorage.cli.session_options import Timeout
from moorage.cli.wait import until_ended, until_pipeline_ended
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.model.status import LIVE, Status

if TYPE_CHECKING:
    from moorage.common.views.endpoints import EndpointView
    from moorage.common.views.pipelines import PipelineView
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

    Stopped = EndpointView | SessionView | PipelineView


@command(app)
def stop(
    cli: Cli,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help="Endpoints, sessions by name or id, pipelines, and elements like sweep[3-5].",
            autocompletion=workload_names,
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            help="All live sessions of this user that are not replicas.", autocompletion=user_names
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")] = True,
    timeout: Timeout = None,
) -> None:
    """Stop sessions, arrays and pipelines, and delete endpoints with all their replicas.

    If one of the names is unknown, nothing is stopped.

    \b
    Examples:
      moorage stop tiny
      moorage stop batch-1a2b3c4d train-7 --no-wait
      moorage stop 'sweep[3-5]'
      moorage stop --user ann
    """
    if not names and user is None:
        raise InvalidInput(
            "there is nothing to stop", next_step="name a session or an endpoint, or give --user"
        )

    async def work(client: Client) -> list[Stopped]:
        found: list[EndpointView | SessionView] = []
        pipelines: list[PipelineView] = []
        for name in names or ():
            sessions, pipeline = await _named(client, name)
            found += sessions
            pipelines += [pipeline] if pipeline else []

        for pipeline in pipelines:
            await client.pipelines.stop(pipeline.id)

        theirs = []
        if user is not None:
            known = {view.id for view in found}
            theirs = [view for view in await _sessions_of(client, user) if view.id not in known]
            await client.sessions.stop_all(user)
        ended = await _stop(cli, client, found=found, asked=theirs, wait=wait, timeout_s=timeout)
        limit_s = timeout if wait else 0
        for pipeline in pipelines:
            ended.append(await until_pipeline_ended(client, pipeline, cli.clock, timeout_s=limit_s))
        return ended

    try:
        with terminated_like_ctrl_c() as interrupted:
            views = cli.run(work)
    except KeyboardInterrupt:
        cli.note("moorage: they keep stopping; `moorage ps` shows them")
        raise typer.Exit(interrupted.exit_code) from None

    if cli.json:
        single = user is None and len(views) == 1
        cli.print_json(views[0] if single else {"stopped": views})
    elif not views:
        cli.note(f"{user} has no session to stop")
    else:
        for view in views:
            print(view.name)


async def _named(
    client: Client, name: str
) -> tuple[Sequence[EndpointView | SessionView], PipelineView | None]:
    """The endpoint, the session or the elements with this name, or else the pipeline. Raises
    ``NotFound``."""
    if parse_elements(name) is not None and (found := await find_elements(client, name)):
        return [view for view in found if view.status in LIVE], None

    try:
        return [await find(client, name)], None
    except NotFound:
        pipeline = await find_pipeline(client, name)
        if pipeline is None:
            raise
        return [], pipeline


async def _sessions_of(client: Client, user: str) -> list[SessionView]:
    found = await live_sessions(client, user=user)
    return [
        view for view in found if view.endpoint is None and view.status is not Status.TERMINATING
    ]


async def _stop(
    cli: Cli,
    client: Client,
    found: Sequence[EndpointView | SessionView],
    asked: Sequence[SessionView],
    *,
    wait: bool,
    timeout_s: float | None,
) -> list[Stopped]:
    """Ask all sessions to stop before waiting for any of them. ``asked``: sessions that have
    already been asked."""
    from moorage.common.views.endpoints import EndpointView

    ended: list[Stopped] = [*asked]
    ending = [*asked]
    for view in found:
        if isinstance(view, EndpointView):
            # Read it before the deletion. Afterwards, the name may belong to another user's new
            # endpoint.
            ending += await live_sessions(client, endpoint=view.name)
            ended.append(await client.endpoints.delete(view.name))
        else:
            stopped = await client.sessions.stop(view.id)
            ended.append(stopped)
            ending.append(stopped)

    if not wait:
        return ended

    last = {
        view.id: view
        for view in await until_ended(client, ending, clock=cli.clock, timeout_s=timeout_s)
    }
    return [last.get(view.id, view) for view in ended]
