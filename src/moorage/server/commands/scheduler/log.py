"""``moorage scheduler log``: the scheduler's decisions, pass by pass, and how they are fetched from
the manager."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import Cli, command, duration_option, output, times
from moorage.cli.completion import group_names
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.views.decisions import DecisionPage, SegmentView
from moorage.server.commands.scheduler.group import scheduler
from moorage.server.process import needs_extra

if TYPE_CHECKING:
    from moorage.manager.decision_log import Gap, RecordedPass
    from moorage.sdk import Client

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Start: 2026-05-04T13:00 (local time unless it has an offset), 13:00, or 10m (ago).",
    ),
]
To = Annotated[str | None, typer.Option("--to", help="End, written like --from. Default: now.")]
Last = Annotated[
    float | None,
    duration_option(
        "Instead of --from and --to: the last 10m, 2h or 1d. Default: 10m.", "--last", min_s=1
    ),
]
Group = Annotated[str, typer.Option(help="Resource group.", autocompletion=group_names)]
_DEFAULT_LAST_S = 600.0
_MAX_REASONS = 4  # shown in a line


@dataclass(frozen=True, slots=True)
class LogSpan:
    """A time span in a resource group's decision log."""

    group: str
    begin: datetime
    end: datetime
    segments: tuple[SegmentView, ...]

    def decisions(self) -> Iterator[RecordedPass | Gap]:
        with needs_extra("manager"):
            from moorage.manager.decision_log import decisions
            from moorage.manager.decision_log.timeline import unix_micros
        return decisions(self.segments, unix_micros(self.begin), unix_micros(self.end))


@command(scheduler, "log")
def show_log(
    cli: Cli,
    group: Group = "default",
    begin: From = None,
    end: To = None,
    last: Last = None,
    limit: Annotated[
        int,
        typer.Option(min=1, max=1_000_000, help="Maximum number of passes; the newest are shown."),
    ] = 50,
) -> None:
    """Show the scheduler's decisions, pass by pass. Administrators only.

    \b
    Examples:
      moorage scheduler log --last 10m
      moorage scheduler log --group gpu --from 13:00 --to 13:05 --limit 1000 -o json
    """
    span = fetch_span(cli, group, begin=begin, end=end, last=last)
    newest: deque[RecordedPass | Gap] = deque(span.decisions(), maxlen=limit)
    if cli.json:
        cli.print_json({"group": group, "passes": [_to_json(entry) for entry in newest]})
        return

    columns = ("TIME", "DURATION", "PENDING", "PLACED", "IDLE PASSES BEFORE", "REASONS FOR WAITING")
    output.print_table(cli.out, columns, [_row(entry) for entry in newest])
    if not newest:
        cli.note(
            f"no scheduling pass of group {group} had a result from {span.begin} to {span.end}"
        )


def _to_json(entry: RecordedPass | Gap) -> dict[str, Any]:
    from moorage.manager.decision_log import Gap

    if isinstance(entry, Gap):
        begin = to_datetime(entry.begin).isoformat()
        end = to_datetime(entry.end).isoformat()
        return {"from": begin, "to": end, "passes_not_recorded": entry.passes}

    return {
        "at": to_datetime(entry.at).isoformat(),
        "duration_ms": entry.took / 1000,
        "pending": len(entry.snapshot.pending),
        "placed": entry.placed,
        "idle_passes_before": entry.idle_passes,
        "held": dict(entry.held),
        "places": {
            place.session_id: [kernel.agent_id for kernel in place.kernels]
            for place in entry.places
        },
        "preempted": [victim.session_id for victim in entry.victims],
    }


def _row(entry: RecordedPass | Gap) -> tuple[str, ...]:
    from moorage.manager.decision_log import Gap

    if isinstance(entry, Gap):
        text = (
            f"{entry.passes} passes not recorded" if entry.passes else "another manager took over"
        )
        return format_micros(entry.begin), "", "", "", "", text

    held = sorted(entry.held.items(), key=lambda pair: -pair[1])
    reasons = ", ".join(f"{count} {reason}" for reason, count in held[:_MAX_REASONS])
    return (
        format_micros(entry.at),
        f"{entry.took / 1000:.1f}ms",
        str(len(entry.snapshot.pending)),
        str(entry.placed),
        str(entry.idle_passes or ""),
        f"{reasons}, …" if len(held) > _MAX_REASONS else reasons,
    )


def fetch_span(
    cli: Cli, group: str, begin: str | None, end: str | None, *, last: float | None
) -> LogSpan:
    """The manager's log for the time span given by the options. Raises ``InvalidInput`` if the span
    is invalid, and ``NotFound`` if the log has no entries in it."""
    now = cli.clock.now()
    if last is not None and (begin is not None or end is not None):
        raise InvalidInput(
            "--last cannot be combined with --from and --to",
            next_step="give either --last or the other two",
        )

    until = now if end is None else times.past(end, now, "--to")
    since = (
        until - timedelta(seconds=_DEFAULT_LAST_S if last is None else last)
        if begin is None
        else times.past(begin, now, "--from")
    )
    if since >= until:
        raise InvalidInput(
            f"--from {since.isoformat()} is not before --to {until.isoformat()}",
            next_step="give the earlier one as --from",
        )

    async def fetch(client: Client) -> list[DecisionPage]:
        pages = [await client.decisions.page(group, since, until)]
        while pages[-1].next is not None:
            pages.append(await client.decisions.page(group, since, until, cursor=pages[-1].next))
        return pages

    pages = cli.run(fetch)
    _check_kept(cli, group, since=since, until=until, page=pages[0])
    return LogSpan(group, since, until, tuple(segment for page in pages for segment in page.items))


def _check_kept(
    cli: Cli, group: str, since: datetime, until: datetime, *, page: DecisionPage
) -> None:
    kept_since = page.kept_since
    kept_until = page.kept_until
    if kept_since is None or kept_until is None:
        raise NotFound(
            f"no decisions of group {group} are kept",
            next_step="check manager.decisions_kept_days; `moorage groups` lists the groups",
        )

    if kept_since > until or kept_until < since:
        raise NotFound(
            f"no decisions of group {group} from {since.isoformat()} to {until.isoformat()}; "
            f"the log has {kept_since.isoformat()} to {kept_until.isoformat()}",
            next_step="choose a time span within that",
        )

    if kept_since > since:
        cli.note(
            f"the log begins at {kept_since.astimezone().isoformat()}: earlier decisions are not "
            "kept"
        )


def to_datetime(unix_micros: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=unix_micros)


def format_micros(unix_micros: int) -> str:
    """Local time with milliseconds."""
    return f"{to_datetime(unix_micros).astimezone():%m-%d %H:%M:%S.%f}"[:-3]
