"""``moorage ps``, ``moorage sessions`` and ``moorage endpoints``: lists of sessions and endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import output, parse
from moorage.cli.app import app, list_command, noun
from moorage.cli.completion import endpoint_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.lookup import all_endpoints, all_sessions
from moorage.common.model.status import LIVE

if TYPE_CHECKING:
    from moorage.common.views.endpoints import EndpointView
    from moorage.common.views.events import EventKind
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

    _Listed = tuple[list[EndpointView], list[SessionView]]

sessions = noun(
    "sessions", help="Sessions. `ps` lists them with the endpoints; the short commands act on them."
)
endpoints = noun(
    "endpoints", help="Endpoints. `ps` lists them with the sessions; the short commands act on them."
)
All = Annotated[bool, typer.Option("--all", "-a", help="Include sessions that have ended.")]
Selector = Annotated[
    str | None,
    typer.Option("--selector", "-l", help="Only with these labels, like team=vision,stage in (dev,test)."),
]
Pipeline = Annotated[
    str | None, typer.Option(help="Only the sessions of this pipeline: its id, or the newest of that name.")
]
_NOTHING = "nothing runs yet; `moorage serve MODEL` serves a model, `moorage run -- CMD` runs a job"


@command(app)
def ps(
    cli: Cli,
    all_: All = False,
    selector: Selector = None,
    pipeline: Pipeline = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show the list again after each change, until Ctrl-C.")
    ] = False,
) -> None:
    """List endpoints and sessions.

    \b
    Examples:
      moorage ps
      moorage ps --all -o wide
      moorage ps -l 'team=vision,stage in (dev,test)'
      moorage ps --all --pipeline train
      moorage ps --watch
      moorage ps -o json | jq '.sessions[].name'
    """

    async def work(client: Client) -> _Listed:
        if pipeline is not None:
            return [], await _sessions(client, all_, selector, pipeline)
        import asyncio

        return await asyncio.gather(all_endpoints(client, selector), _sessions(client, all_, selector))

    if watch:
        from moorage.cli.watch import watch as watch_list

        kinds: tuple[EventKind, ...] = ("session", "endpoint")
        cli.run(lambda client: watch_list(cli, client, kinds, work, lambda found: _show(cli, *found)))
    else:
        _show(cli, *cli.run(work, workloads_only=True))


def _show(cli: Cli, endpoint_views: list[EndpointView], session_views: list[SessionView]) -> None:
    if cli.json:
        cli.print_json({"endpoints": endpoint_views, "sessions": session_views})
    elif cli.output is Output.NAME:
        alone = (view.name for view in session_views if view.endpoint is None)
        for name in (*(view.name for view in endpoint_views), *alone):
            print(name)
    elif not endpoint_views and not session_views:
        cli.note(_NOTHING)
    else:
        if endpoint_views:
            _print_endpoints(cli, endpoint_views)
        if endpoint_views and session_views:
            cli.out.print()
        if session_views:
            _print_sessions(cli, session_views)


@list_command(sessions)
def list_sessions(cli: Cli, all_: All = False, selector: Selector = None, pipeline: Pipeline = None) -> None:
    """List sessions, replicas included.

    \b
    Examples:
      moorage sessions list --all
    """
    found = cli.run(lambda client: _sessions(client, all_, selector, pipeline), workloads_only=True)
    if cli.json:
        cli.print_json({"sessions": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    elif found:
        _print_sessions(cli, found)
    else:
        cli.note(_NOTHING)


@list_command(endpoints)
def list_endpoints(cli: Cli, selector: Selector = None) -> None:
    """List endpoints."""
    found = cli.run(lambda client: all_endpoints(client, selector), workloads_only=True)
    if cli.json:
        cli.print_json({"endpoints": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.name)
    elif found:
        _print_endpoints(cli, found)
    else:
        cli.note("there is no endpoint; `moorage serve MODEL` creates one")


@command(endpoints, "set")
def set_endpoint(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="An endpoint.", autocompletion=endpoint_names)],
    fields: Annotated[list[str], typer.Argument(help="FIELD=VALUE; none removes a field.")],
    if_version: Annotated[
        int | None, typer.Option(help="Refuse if the endpoint has another version; `-o json` shows it.")
    ] = None,
) -> None:
    """Change fields of an endpoint's spec; others stay. What changes its replicas rolls out.

    \b
    Examples:
      moorage endpoints set tiny model=/models/tiny-v2.gguf resources.mem=4GiB
      moorage endpoints set tiny args='["--ctx-size","8192"]' env.LOG=debug
      moorage endpoints set tiny autoscale.min=0 autoscale.max=4 autoscale.waiting=2
      moorage endpoints set tiny rollout.max_surge=2 rollout.drain_timeout_s=300
      moorage endpoints set tiny routing.fallbacks='[{"model":"small"}]'
    """
    from moorage.common.views.endpoints import EndpointPatch

    patch = EndpointPatch.model_validate(parse.patch(fields))
    view = cli.run(lambda client: client.update_endpoint(name, patch, version=if_version))
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    else:
        note = f"; `moorage rollout status {view.name}` shows how far it is"
        rolls = view.rollout is not None and view.rollout.state == "progressing"
        print(f"{view.name} has revision {view.revision}{note if rolls else ''}")


async def _sessions(
    client: Client, with_ended: bool, selector: str | None, pipeline: str | None = None
) -> list[SessionView]:
    return await all_sessions(client, () if with_ended else LIVE, selector=selector, pipeline=pipeline)


def _print_sessions(cli: Cli, found: Sequence[SessionView]) -> None:
    columns = output.SESSION_COLUMNS + (output.SESSION_WIDE if cli.wide else ())
    now = cli.clock.now()
    output.print_table(cli.out, columns, [output.session_row(view, now, wide=cli.wide) for view in found])


def _print_endpoints(cli: Cli, found: Sequence[EndpointView]) -> None:
    columns = output.ENDPOINT_COLUMNS + (output.ENDPOINT_WIDE if cli.wide else ())
    now = cli.clock.now()
    output.print_table(cli.out, columns, [output.endpoint_row(view, now, wide=cli.wide) for view in found])
