"""``moorage ps``: tables of endpoints and sessions, shared with ``endpoints list`` and ``sessions
list``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import output
from moorage.cli.app import app
from moorage.cli.array_table import ARRAY_COLUMNS, array_rows
from moorage.cli.completion import names_of
from moorage.cli.context import Cli, Output, command
from moorage.cli.list_order import KEYS, ListOrder, parse_order
from moorage.cli.output import current_kernel, format_age, load_cells, progress_text, step_label
from moorage.cli.summary import is_degraded, shown_status, silence, suspension
from moorage.common.model.errors import InvalidInput
from moorage.common.model.slots import format_slots
from moorage.common.model.status import ATTENDED, LIVE, Outcome, Status

if TYPE_CHECKING:
    from moorage.common.views.endpoints import EndpointView
    from moorage.common.views.events import EventKind
    from moorage.common.views.pipelines import PipelineView
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

    _Listed = tuple[list[EndpointView], list[SessionView], list[PipelineView]]
    _Table = tuple[Sequence[str], list[list[str]]]
    _Query = dict[str, str | None]


All = Annotated[bool, typer.Option("--all", "-a", help="Include sessions that have ended.")]
Statuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS[,STATUS]",
        help="Only sessions in these statuses, including ended ones, like FAILED,ERROR or RUNNING.",
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
        help="Only the sessions of this pipeline: its id, or its name, which means the newest.",
        autocompletion=names_of("pipelines"),
    ),
]
User = Annotated[
    str | None, typer.Option(help="Only those of this user.", autocompletion=names_of("users"))
]
Mine = Annotated[bool, typer.Option("--mine", help="Only your own.")]
Project = Annotated[
    str | None,
    typer.Option(help="Only those of this project.", autocompletion=names_of("projects")),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        help="Only sessions in this resource group.",
        autocompletion=names_of("groups"),
    ),
]
Search = Annotated[
    str | None,
    typer.Option("--search", metavar="TEXT", help="Only those whose name contains this text."),
]
SortedBy = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="[-]KEY",
        help=f"Order: {', '.join(KEYS)}; - in front is descending. Default: newest sessions "
        "first, endpoints by name.",
        autocompletion=lambda incomplete: [
            key for key in (*KEYS, *(f"-{key}" for key in KEYS)) if key.startswith(incomplete)
        ],
    ),
]
Elements = Annotated[
    bool,
    typer.Option("--elements", help="One line for each element of an array, not one for all."),
]
Watch = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Show the list again after each change, until Ctrl-C."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only names, like -o name.")]

ENDPOINT_COLUMNS = ("NAME", "STATUS", "READY", "RUN", "WAIT", "KV", "ENGINE", "MODEL", "AGE", "WHY")
ENDPOINT_WIDE = ("REVISION", "SCALE", "GROUP", "SLOTS", "DETAIL")
SESSION_COLUMNS = ("NAME", "TYPE", "STATUS", "PROGRESS", "AGENT", "AGE", "WHY")
SESSION_WIDE = ("ID", "GROUP", "SLOTS", "ATTEMPT", "ENDPOINT", "PIPELINE", "ADDRESS", "DETAIL")
# Columns that a narrow terminal loses first; after them, from the right.
_DROPPED_FIRST = (
    *("DETAIL", "ADDRESS", "PIPELINE", "ENDPOINT", "ATTEMPT", "SLOTS", "GROUP", "ID"),
    *("PROJECT", "AGENT", "TYPE", "PROGRESS", "AGE", "USER", "WHY"),
    *("SCALE", "REVISION", "ENGINE", "MODEL", "KV", "WAIT", "RUN"),
)
_NONE_FOUND = "nothing matches; `moorage ps --all` lists everything, including what has ended"
_NOTHING = "nothing runs yet; `moorage serve MODEL` serves a model, `moorage run -- CMD` runs a job"


@command(app)
def ps(
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
    elements: Elements = False,
    watch: Watch = False,
) -> None:
    """List endpoints, sessions and arrays.

    An array is one line; filters by status, label, group or pipeline list its elements. Sessions of
    several users are listed with their users.

    \b
    Examples:
      moorage ps
      moorage ps --all -o wide
      moorage ps --mine --status FAILED,ERROR
      moorage ps --user ann --project vision --group gpus
      moorage ps --search train
      moorage ps --sort -gpus
      moorage ps -l 'team=vision,stage in (dev,test)'
      moorage ps --all --pipeline train
      moorage ps --mine -q | xargs moorage stop
      moorage ps --elements --search sweep
      moorage ps --watch
      moorage ps -o json | jq '.sessions[].name'
    """
    if quiet:
        cli.print_only_names()

    only_sessions = pipeline is not None or status is not None or group is not None
    folded = not (only_sessions or elements or selector is not None)
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
        elements=not folded,
    ).checked()

    async def work(client: Client) -> _Listed:
        found = await wanted.resolved(client)
        if only_sessions:
            return [], await found.sessions(client), []

        import asyncio

        return await asyncio.gather(
            found.endpoints(client), found.sessions(client), found.pipelines(client)
        )

    def listing(found: _Listed) -> ListOutput:
        return _listing(cli, found, folded=folded)

    if watch:
        from moorage.cli.watch import watch as watch_list

        kinds: tuple[EventKind, ...] = ("session", "endpoint")
        cli.run(
            lambda client: watch_list(
                cli, client, kinds=kinds, read=work, show=lambda found: show(cli, listing(found))
            )
        )
        return

    def plain() -> ListOutput:
        found = wanted.resolved_plainly(cli)
        others = [] if only_sessions else [found.endpoint_list]
        arrays = [found.pipeline_list] if folded else []
        read = cli.read_lists(*others, found.session_list, *arrays)
        pipelines = read.pop() if folded else []
        sessions = found.sorted_sessions(read.pop())
        return listing((found.sorted_endpoints(read[0]) if read else [], sessions, pipelines))

    narrowed = SessionFilter(wanted.statuses, elements=not folded) != wanted or status is not None
    nothing = _NONE_FOUND if narrowed else _NOTHING
    show(cli, plainly(cli, plain) or listing(cli.run(work)), nothing)


def _listing(cli: Cli, found: _Listed, *, folded: bool) -> ListOutput:
    """``folded``: arrays are listed as one line each."""
    endpoints, sessions, pipelines = found
    arrays = [view for view in pipelines if view.arrays]
    return ListOutput(
        names=[view.name for view in endpoints]
        + [view.name for view in sessions if view.endpoint is None]
        + [view.name for view in arrays],
        tables=[
            endpoint_table(cli, endpoints),
            session_table(cli, sessions),
            (ARRAY_COLUMNS, array_rows(arrays, cli.clock.now())),
        ],
        fields={"endpoints": endpoints, "sessions": sessions}
        | ({"arrays": arrays} if folded else {}),
    )


@dataclass(frozen=True)
class SessionFilter:
    """Which sessions and endpoints are listed. ``statuses``: empty means all. ``mine``: those of
    the caller, whose name is not yet known."""

    statuses: Collection[Status | Outcome]
    selector: str | None = None
    pipeline: str | None = None
    user: str | None = None
    mine: bool = False
    project: str | None = None
    group: str | None = None
    search: str | None = None
    sort: ListOrder | None = None
    elements: bool = True

    def checked(self) -> SessionFilter:
        """Raises ``InvalidInput``."""
        if self.mine and self.user is not None:
            raise InvalidInput("--mine and --user exclude each other", next_step="leave out one")
        return self

    async def resolved(self, client: Client) -> SessionFilter:
        """The filter with the caller's name."""
        return self.of((await client.users.me()).user) if self.mine else self

    def resolved_plainly(self, cli: Cli) -> SessionFilter:
        """Like ``resolved``. Raises ``plain_reads.FAILURES``."""
        return self.of(cli.read_object("/v1/session").user) if self.mine else self

    def of(self, user: str) -> SessionFilter:
        return replace(self, user=user, mine=False)

    async def sessions(self, client: Client) -> list[SessionView]:
        found = await client.sessions.list(
            statuses=self.statuses,
            selector=self.selector,
            pipeline=self.pipeline,
            user=self.user,
            project=self.project,
            resource_group=self.group,
            search=self.search,
            elements=self.elements,
            sort=None if self.sort is None else self.sort.of_sessions,
        )
        return self.sorted_sessions(found)

    async def pipelines(self, client: Client) -> list[PipelineView]:
        """The pipelines whose arrays are listed as one line each."""
        if self.elements:
            return []
        return await client.pipelines.list(
            search=self.search, user=self.user, project=self.project, live=bool(self.statuses)
        )

    async def endpoints(self, client: Client) -> list[EndpointView]:
        found = await client.endpoints.list(
            user=self.user,
            project=self.project,
            selector=self.selector,
            search=self.search,
            sort=None if self.sort is None else self.sort.of_endpoints,
        )
        return self.sorted_endpoints(found)

    def sorted_sessions(self, found: list[Any]) -> list[Any]:
        return found if self.sort is None else self.sort.sessions(found)

    def sorted_endpoints(self, found: list[Any]) -> list[Any]:
        return found if self.sort is None else self.sort.endpoints(found)

    @property
    def session_list(self) -> tuple[str, _Query]:
        """Path and query of the list read by ``sessions``."""
        query = {
            "status": ",".join(sorted(self.statuses)) or None,
            "resource_group": self.group,
            "pipeline": self.pipeline,
            "elements": None if self.elements else "false",
        }
        sort = None if self.sort is None else self.sort.of_sessions
        return "/v1/sessions", query | self.endpoint_list[1] | {"sort": sort}

    @property
    def pipeline_list(self) -> tuple[str, _Query]:
        """Path and query of the list read by ``pipelines``."""
        return "/v1/pipelines", {
            "search": self.search,
            "user": self.user,
            "project": self.project,
            "live": "true" if self.statuses else None,
        }

    @property
    def endpoint_list(self) -> tuple[str, _Query]:
        """Path and query of the list read by ``endpoints``."""
        return "/v1/endpoints", {
            "user": self.user,
            "project": self.project,
            "selector": self.selector,
            "search": self.search,
            "sort": None if self.sort is None else self.sort.of_endpoints,
        }


@dataclass(frozen=True)
class ListOutput:
    """The output of a list: its names, its tables, or its fields in JSON."""

    names: list[str]
    tables: list[_Table]
    fields: dict[str, Any]


def show(cli: Cli, found: ListOutput, nothing: str = _NOTHING) -> None:
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
        output.print_table(cli.out, columns, rows, _DROPPED_FIRST)


def plainly(cli: Cli, plain: Callable[[], ListOutput]) -> ListOutput | None:
    """The result of ``plain``, for tables and names. None means that the SDK's client must be used,
    which validates complete answers and reports errors in full."""
    from moorage.cli.plain_reads import FAILURES

    if cli.json:
        return None

    try:
        return plain()
    except FAILURES:
        return None


def named_statuses(with_ended: bool, named: list[str] | None) -> Collection[Status | Outcome]:
    """The statuses whose sessions are listed; empty means all. Raises ``InvalidInput``."""
    if not named:
        return () if with_ended else LIVE

    known: dict[str, Status | Outcome] = {str(member): member for member in (*Status, *Outcome)}
    texts = [text.strip().upper() for given in named for text in given.split(",")]
    for text in texts:
        if text not in known:
            raise InvalidInput(
                f"there is no status {text!r}", next_step=f"known: {', '.join(known)}"
            )

    return [known[text] for text in texts]


def session_table(cli: Cli, found: Sequence[SessionView]) -> _Table:
    columns = SESSION_COLUMNS + (SESSION_WIDE if cli.wide else ())
    now = cli.clock.now()
    rows = [session_row(view, now, wide=cli.wide) for view in found]
    return _with_owners(cli, found, columns, rows)


def endpoint_table(cli: Cli, found: Sequence[EndpointView]) -> _Table:
    columns = ENDPOINT_COLUMNS + (ENDPOINT_WIDE if cli.wide else ())
    now = cli.clock.now()
    rows = [endpoint_row(view, now, wide=cli.wide) for view in found]
    return _with_owners(cli, found, columns, rows)


def _with_owners(
    cli: Cli,
    found: Sequence[SessionView] | Sequence[EndpointView],
    columns: Sequence[str],
    rows: list[list[str]],
) -> _Table:
    """The table with users and projects after the names, if they are several or it is wide."""
    owners = {"USER": [view.user for view in found], "PROJECT": [view.project for view in found]}
    shown = {title: who for title, who in owners.items() if cli.wide or len(set(who)) > 1}
    cells = [[who[number] for who in shown.values()] for number in range(len(rows))]
    return (
        [columns[0], *shown, *columns[1:]],
        [[row[0], *own, *row[1:]] for row, own in zip(rows, cells, strict=True)],
    )


def endpoint_row(view: EndpointView, now: datetime, *, wide: bool) -> list[str]:
    why = getattr(view, "needs_newer_manager", "") or str(view.reason)
    if why and view.failures > 1:
        why += f" (x{view.failures})"

    if not why:
        why = next(
            (
                session.detail
                for session in view.sessions
                if session.state == "loading" and session.detail
            ),
            "",
        )

    spec = view.spec
    model = "" if spec is None else spec.model or " ".join(spec.command)
    if not wide and len(model) > 40:
        model = "…" + model[-39:]

    row = [view.name, view.status, f"{view.ready}/{view.replicas}", *load_cells(view)]
    row += [spec.engine if spec else "", model]
    row += [format_age(now, view.created_at), why]

    if wide:
        slots = (
            ""
            if spec is None
            else ", ".join(f"{name}={value}" for name, value in spec.resources.items())
        )
        scale = (
            ""
            if spec is None or spec.autoscale is None
            else f"{spec.autoscale.min}-{spec.autoscale.max}"
        )
        row += [str(view.revision), scale, spec.resource_group if spec else "", slots, view.detail]

    return row


def session_row(view: SessionView, now: datetime, *, wide: bool) -> list[str]:
    kernel = current_kernel(view)
    why = getattr(view, "needs_newer_manager", "")  # missing from a manager of the previous release
    why = why or (silence(view, now) if view.status in LIVE else "")
    why = why or suspension(view)
    why = why or (view.detail if is_degraded(view) else "")
    why = why or (view.hold.text if view.hold else str(view.reason))
    if not why and view.status == Status.RUNNING and view.type in ATTENDED:
        why = view.detail  # same colour as the warning about an idle session

    progress = progress_text(kernel.progress, short=True) if kernel and view.status in LIVE else ""
    row = [view.name, view.type, shown_status(view), progress, agents_of(view)]
    row += [format_age(now, view.created_at), why]

    if wide:
        row += [
            view.id,
            view.resource_group,
            format_slots(view.slots),
            str(view.attempt),
            view.endpoint or "",
            step_label(view.pipeline),
        ]
        row += [f"{kernel.host}:{kernel.port}" if kernel and kernel.port else "", view.detail]

    return row


def agents_of(view: SessionView) -> str:
    """The agents of the newest attempt's kernels, joined by commas."""
    names = [k.agent_id for k in view.kernels if k.attempt == view.attempt and k.agent_id]
    if len(names) <= 1:
        kernel = current_kernel(view)
        return (kernel and kernel.agent_id) or ""
    return ",".join(dict.fromkeys(names))
