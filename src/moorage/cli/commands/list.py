"""``moorage ps``, ``moorage sessions`` and ``moorage endpoints``: lists of sessions and
endpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import output, parse
from moorage.cli.app import app, list_command, noun
from moorage.cli.completion import endpoint_names, pipeline_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.lookup import all_endpoints, all_sessions
from moorage.common.model.errors import InvalidInput
from moorage.common.model.status import LIVE, Outcome, Status

if TYPE_CHECKING:
    from moorage.common.views.endpoints import EndpointView
    from moorage.common.views.events import EventKind
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

    _Listed = tuple[list[EndpointView], list[SessionView]]
    _Table = tuple[Sequence[str], list[list[str]]]

sessions = noun(
    "sessions", help="Sessions. `ps` lists them with the endpoints; the short commands act on them."
)
endpoints = noun(
    "endpoints",
    help="Endpoints. `ps` lists them with the sessions; the short commands act on them.",
)
All = Annotated[bool, typer.Option("--all", "-a", help="Include sessions that have ended.")]
Statuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS[,STATUS]",
        help="Only sessions in these statuses, also ended ones: FAILED,ERROR or RUNNING.",
    ),
]
Selector = Annotated[
    str | None,
    typer.Option(
        "--selector", "-l", help="Only with these labels, like team=vision,stage in (dev,test)."
    ),
]
Pipeline = Annotated[
    str | None,
    typer.Option(
        help="Only the sessions of this pipeline: its id, or the newest of that name.",
        autocompletion=pipeline_names,
    ),
]
_NOTHING = "nothing runs yet; `moorage serve MODEL` serves a model, `moorage run -- CMD` runs a job"


@command(app)
def ps(
    cli: Cli,
    all_: All = False,
    status: Statuses = None,
    selector: Selector = None,
    pipeline: Pipeline = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Show the list again after each change, until Ctrl-C."),
    ] = False,
) -> None:
    """List endpoints and sessions.

    \b
    Examples:
      moorage ps
      moorage ps --all -o wide
      moorage ps -l 'team=vision,stage in (dev,test)'
      moorage ps --all --pipeline train
      moorage ps --status FAILED,ERROR
      moorage ps --watch
      moorage ps -o json | jq '.sessions[].name'
    """

    wanted = _statuses(all_, status)
    only_sessions = pipeline is not None or status is not None

    async def work(client: Client) -> _Listed:
        if only_sessions:
            return [], await all_sessions(client, wanted, selector=selector, pipeline=pipeline)
        import asyncio

        return await asyncio.gather(
            all_endpoints(client, selector), all_sessions(client, wanted, selector=selector)
        )

    def listing(found: _Listed) -> _Listing:
        return _Listing(
            names=[view.name for view in found[0]]
            + [v.name for v in found[1] if v.endpoint is None],
            tables=[_endpoint_table(cli, found[0]), _session_table(cli, found[1])],
            fields={"endpoints": found[0], "sessions": found[1]},
        )

    if watch:
        from moorage.cli.watch import watch as watch_list

        kinds: tuple[EventKind, ...] = ("session", "endpoint")
        cli.run(
            lambda client: watch_list(
                cli, client, kinds=kinds, read=work, show=lambda found: _show(cli, listing(found))
            )
        )
        return

    endpoints_read = [] if only_sessions else [("/v1/endpoints", {"selector": selector})]

    def plain() -> _Listing:
        *first, last = cli.read_lists(*endpoints_read, _session_list(wanted, selector, pipeline))
        return listing((first[0] if first else [], last))

    _show(cli, _plainly(cli, plain) or listing(cli.run(work, workloads_only=True)))


@list_command(sessions)
def list_sessions(
    cli: Cli,
    all_: All = False,
    status: Statuses = None,
    selector: Selector = None,
    pipeline: Pipeline = None,
) -> None:
    """List sessions, replicas included.

    \b
    Examples:
      moorage sessions list --all
      moorage sessions list --status SUCCEEDED
    """
    wanted = _statuses(all_, status)

    def listing(found: list[SessionView]) -> _Listing:
        return _Listing(
            [view.name for view in found], [_session_table(cli, found)], {"sessions": found}
        )

    def plain() -> _Listing:
        return listing(*cli.read_lists(_session_list(wanted, selector, pipeline)))

    def complete() -> _Listing:
        return listing(
            cli.run(
                lambda client: all_sessions(client, wanted, selector=selector, pipeline=pipeline),
                workloads_only=True,
            )
        )

    _show(cli, _plainly(cli, plain) or complete())


@list_command(endpoints)
def list_endpoints(cli: Cli, selector: Selector = None) -> None:
    """List endpoints."""

    def listing(found: list[EndpointView]) -> _Listing:
        return _Listing(
            [view.name for view in found], [_endpoint_table(cli, found)], {"endpoints": found}
        )

    def plain() -> _Listing:
        return listing(*cli.read_lists(("/v1/endpoints", {"selector": selector})))

    def complete() -> _Listing:
        return listing(cli.run(lambda client: all_endpoints(client, selector), workloads_only=True))

    _show(
        cli,
        _plainly(cli, plain) or complete(),
        "there is no endpoint; `moorage serve MODEL` creates one",
    )


@command(endpoints, "set")
def set_endpoint(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="An endpoint.", autocompletion=endpoint_names)],
    fields: Annotated[list[str], typer.Argument(help="FIELD=VALUE; none removes a field.")],
    if_version: Annotated[
        int | None,
        typer.Option(help="Refuse if the endpoint has another version; `-o json` shows it."),
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


@dataclass(frozen=True)
class _Listing:
    """What a list prints: its names, its tables, or its fields in JSON."""

    names: list[str]
    tables: list[_Table]
    fields: dict[str, Any]


def _show(cli: Cli, found: _Listing, nothing: str = _NOTHING) -> None:
    tables = [(columns, rows) for columns, rows in found.tables if rows]
    if cli.json:
        cli.print_json(found.fields)
    elif cli.output is Output.NAME:
        for name in found.names:
            print(name)
    elif not tables:
        cli.note(nothing)

    for number, (columns, rows) in enumerate(
        tables if cli.output in (Output.TABLE, Output.WIDE) else ()
    ):
        if number:
            cli.out.print()
        output.print_table(cli.out, columns, rows)


def _plainly(cli: Cli, plain: Callable[[], _Listing]) -> _Listing | None:
    """``plain`` in tables and names. None: the client shall read, whose answers are validated and
    complete, and whose errors say what is wrong."""
    from moorage.cli.plain_reads import FAILURES

    if cli.json:
        return None

    try:
        return plain()
    except FAILURES:
        return None


def _statuses(with_ended: bool, named: list[str] | None) -> Collection[Status | Outcome]:
    """Those whose sessions are listed; empty: all. Raises ``InvalidInput``."""
    if not named:
        return () if with_ended else LIVE

    known: dict[str, Status | Outcome] = {str(one): one for one in (*Status, *Outcome)}
    texts = [text.strip().upper() for given in named for text in given.split(",")]
    for text in texts:
        if text not in known:
            raise InvalidInput(
                f"there is no status {text!r}", next_step=f"known: {', '.join(known)}"
            )

    return [known[text] for text in texts]


def _session_list(
    statuses: Collection[Status | Outcome], selector: str | None, pipeline: str | None
) -> tuple[str, dict[str, str | None]]:
    """Path and query of what ``all_sessions`` reads."""
    wanted = ",".join(sorted(statuses)) or None
    return "/v1/sessions", {"status": wanted, "selector": selector, "pipeline": pipeline}


def _session_table(cli: Cli, found: Sequence[SessionView]) -> _Table:
    columns = output.SESSION_COLUMNS + (output.SESSION_WIDE if cli.wide else ())
    now = cli.clock.now()
    return columns, [output.session_row(view, now, wide=cli.wide) for view in found]


def _endpoint_table(cli: Cli, found: Sequence[EndpointView]) -> _Table:
    columns = output.ENDPOINT_COLUMNS + (output.ENDPOINT_WIDE if cli.wide else ())
    now = cli.clock.now()
    return columns, [output.endpoint_row(view, now, wide=cli.wide) for view in found]
