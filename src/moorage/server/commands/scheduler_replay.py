"""``moorage scheduler log`` and ``replay``: what was decided, and what another policy would have done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import Cli, command, duration_option, output, parse, times
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.model.group_options import GroupOptions
from moorage.common.views.decisions import DecisionPage, RunView, SegmentView
from moorage.sdk import Client
from moorage.server.commands.scheduler_simulate import COLUMNS, draw, row, scheduler
from moorage.server.process import missing_extra

if TYPE_CHECKING:
    from moorage.manager.decision_log import Decision, Gap
    from moorage.manager.decision_log.timeline import Difference
    from moorage.manager.scheduling import Policy
    from moorage.simulator.scheduler.recording import Recorded

From = Annotated[
    str | None,
    typer.Option(
        "--from", help="2026-05-04T13:00 (local time unless it has an offset), 13:00, or 10m (ago)."
    ),
]
To = Annotated[str | None, typer.Option("--to", help="Written like --from. Default: now.")]
Last = Annotated[
    float | None,
    duration_option("Instead of --from and --to: the last 10m, 2h or 1d. Default: 10m.", "--last", min_s=1),
]
Group = Annotated[str, typer.Option(help="The resource group.")]
_DEFAULT_LAST_S = 600.0
_HELD = 4  # reasons that are shown in a line
_SHOWN = 20  # differences that are shown
# As `simulate` knows them; what they do not say is as it was recorded.
_NAMED = {
    "strict": "hol=strict",
    "skip": "hol=skip",
    "greedy": "hol=skip max_bypasses=none max_skip_age_s=none",
    "backfill": "hol=backfill",
    "lifo": "strategy=lifo",
    "drf": "strategy=drf",
}


@dataclass(frozen=True, slots=True)
class Span:
    """What the manager has of a span that was asked for."""

    group: str
    begin: datetime
    end: datetime
    segments: tuple[SegmentView, ...]

    def decisions(self) -> Iterator[Decision | Gap]:
        try:
            from moorage.manager.decision_log import decisions
            from moorage.manager.decision_log.timeline import unix_micros
        except ImportError as error:
            raise missing_extra("manager", error) from error
        return decisions(self.segments, unix_micros(self.begin), unix_micros(self.end))


@command(scheduler, "log")
def show_log(
    cli: Cli,
    group: Group = "default",
    begin: From = None,
    end: To = None,
    last: Last = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="At most so many passes, the newest.")
    ] = 50,
) -> None:
    """What the scheduler decided, pass by pass. For administrators.

    \b
    Examples:
      moorage scheduler log --last 10m
      moorage scheduler log --group gpu --from 13:00 --to 13:05 --limit 1000 -o json
    """
    span = ask(cli, group, begin, end, last)
    rows: deque[dict[str, Any]] = deque(maxlen=limit)
    for found in span.decisions():
        rows.append(_facts(found))
    if cli.json:
        cli.print_json({"group": group, "passes": [{n: _said(v) for n, v in row.items()} for row in rows]})
        return
    columns = ("TIME", "TOOK", "WAITED", "PLACED", "ALIKE BEFORE", "THEN WAIT FOR")
    output.print_table(cli.out, columns, [_cells(row) for row in rows])
    if not rows:
        cli.say(f"no pass of group {group} changed anything from {span.begin} to {span.end}")


def _facts(found: Decision | Gap) -> dict[str, Any]:
    from moorage.manager.decision_log import Gap

    if isinstance(found, Gap):
        return {"from": _time(found.begin), "to": _time(found.end), "not_kept": found.passes}
    return {
        "at": _time(found.at),
        "took_ms": found.took / 1000,
        "waited": len(found.snapshot.pending),
        "placed": found.placed,
        "alike_before": found.idle_passes,
        "held": dict(found.held),
        "places": {place.session_id: [kernel.agent_id for kernel in place.kernels] for place in found.places},
        "stopped_for_others": [victim.session_id for victim in found.victims],
    }


def _said(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if "not_kept" in row:
        said = f"{row['not_kept']} passes were not kept" if row["not_kept"] else "another manager leads"
        return _shown(row["from"]), "", "", "", "", said
    held = sorted(row["held"].items(), key=lambda one: -one[1])
    said = ", ".join(f"{count} {reason}" for reason, count in held[:_HELD])
    said += ", …" if len(held) > _HELD else ""
    return (
        _shown(row["at"]),
        f"{row['took_ms']:.1f}ms",
        str(row["waited"]),
        str(row["placed"]),
        str(row["alike_before"] or ""),
        said,
    )


def _time(micros: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def ask(cli: Cli, group: str, begin: str | None, end: str | None, last: float | None) -> Span:
    """What the manager keeps of that span. Raises ``InvalidInput`` for one that is none, ``NotFound`` where
    nothing is kept of it."""
    now = cli.clock.now()
    if last is not None and (begin is not None or end is not None):
        raise InvalidInput("--last excludes --from and --to", next_step="give --last alone, or the other two")
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

    async def work(client: Client) -> list[DecisionPage]:
        pages = [await client.list_decisions(group, since, until)]
        while pages[-1].next is not None:
            pages.append(await client.list_decisions(group, since, until, cursor=pages[-1].next))
        return pages

    pages = cli.run(work)
    _check_kept(cli, group, since, until, pages[0])
    return Span(group, since, until, tuple(segment for page in pages for segment in page.items))


def _check_kept(cli: Cli, group: str, since: datetime, until: datetime, page: DecisionPage) -> None:
    kept = page.kept_since, page.kept_until
    if kept[0] is None or kept[1] is None:
        raise NotFound(
            f"nothing that was decided in group {group} is kept",
            next_step="manager.decisions_kept_days says for how long it is; `moorage groups` lists groups",
        )
    if kept[0] > until or kept[1] < since:
        raise NotFound(
            f"nothing was decided in group {group} from {since.isoformat()} to {until.isoformat()}; "
            f"kept is what was from {kept[0].isoformat()} to {kept[1].isoformat()}",
            next_step="ask for a span within that",
        )
    if kept[0] > since:
        cli.say(f"what was decided before {kept[0].astimezone().isoformat()} is not kept: it begins there")


@command(scheduler)
def replay(
    cli: Cli,
    group: Group = "default",
    begin: From = None,
    end: To = None,
    last: Last = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Several times, or with commas: strict, skip, greedy, backfill, lifo, drf; or options of "
            "a group as `groups set` takes them: 'hol=skip max_bypasses=10'. All else is as recorded."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Plan each pass again, and compare with what was decided.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw waits and use over time into this .png or .svg.")
    ] = None,
) -> None:
    """What another policy would have done with the work that really came. For administrators.

    \b
    Examples:
      moorage scheduler replay --last 1h --policy strict,backfill
      moorage scheduler replay --from 13:00 --to 15:00 --policy drf --policy 'hol=skip max_bypasses=10'
      moorage scheduler replay --last 10m --verify
    """
    if verify and (policy or plot):
        raise InvalidInput("--verify takes no --policy and no --plot", next_step="leave one of them out")
    check_words(policy or [])
    span = ask(cli, group, begin, end, last)
    if verify:
        raise typer.Exit(_verify(cli, span))
    gaps: list[Gap] = []
    recorded = gathered(cli, span, gaps)
    asked = {"recorded": recorded.policy} | dict(asked_policies(policy or [], recorded.policy))
    for each in asked.values():
        _check_selector(each)
    compare(cli, span, recorded, asked, plot)
    _remark(cli, recorded, gaps)


def check_words(texts: list[str]) -> None:
    """Raises ``InvalidInput`` or ``ValidationError`` before the manager is asked."""
    try:
        from moorage.manager.scheduling import Policy
    except ImportError as error:
        raise missing_extra("manager", error) from error

    asked_policies(texts, Policy())


def asked_policies(texts: list[str], recorded: Policy) -> dict[str, Policy]:
    """By what was typed. Raises ``InvalidInput`` or ``ValidationError`` naming the option."""
    from moorage.manager.store.groups import options_of, policy_of

    known = options_of(recorded).model_dump(mode="json")
    found = {}
    for text in texts:
        names = [text] if "=" in text else [name.strip() for name in text.split(",") if name.strip()]
        for name in names or [text]:
            if "=" not in name and name not in _NAMED:
                raise InvalidInput(
                    f"--policy {name!r} is not known",
                    next_step=f"one of: {', '.join(_NAMED)}, or options like 'hol=skip max_bypasses=10'",
                )
            options = parse.options(_NAMED.get(name, name).split(), GroupOptions, known)
            found[name] = policy_of(GroupOptions.model_validate(options))
    return found


def _verify(cli: Cli, span: Span) -> int:
    from moorage.manager.decision_log import Gap, differences
    from moorage.manager.selector_plugins import Selectors

    selectors, passes, places, skipped, dropped = Selectors(), 0, 0, 0, 0
    found: list[Difference] = []
    for decision in span.decisions():
        if isinstance(decision, Gap):
            dropped += decision.passes
            continue
        custom = selectors.load(decision.policy.custom)
        if decision.policy.custom is not None and not custom:
            skipped += 1
            continue
        passes, places = passes + 1, places + len(decision.places)
        found += differences(decision, custom)
    if cli.json:
        shown = [asdict(each) | {"at": _time(each.at).isoformat()} for each in found]
        counts = {"passes": passes, "places": places, "skipped": skipped, "not_kept": dropped}
        cli.print_json({"group": span.group, **counts, "differences": shown})
    else:
        rows = [(_clock(e.at), e.session_id, e.recorded or "-", e.planned or "-") for e in found[:_SHOWN]]
        if rows:
            output.print_table(cli.out, ("TIME", "SESSION", "DECIDED", "PLANNED AGAIN"), rows)
        print(f"{passes} passes with {places} places planned again: {len(found) or 'no'} differences")
    if skipped:
        cli.say(f"{skipped} passes used an agent selector that is not installed here: not looked at")
    if dropped:
        cli.say(f"{dropped} passes were not kept")
    return 1 if found else 0


def gathered(cli: Cli, span: Span, gaps: list[Gap]) -> Recorded:
    """The work of the span. Raises ``NotFound`` where there was none."""
    from moorage.manager.decision_log import Gap
    from moorage.manager.decision_log.timeline import unix_micros
    from moorage.simulator.scheduler.recording import gather

    async def work(client: Client) -> list[RunView]:
        page = await client.list_runs(span.group, span.begin, span.end)
        found = list(page.items)
        while page.next is not None:
            page = await client.list_runs(span.group, span.begin, span.end, cursor=page.next)
            found += page.items
        return found

    def passes() -> Iterator[Decision]:
        for one in span.decisions():
            if isinstance(one, Gap):
                gaps.append(one)
            else:
                yield one

    recorded = gather(passes(), cli.run(work), unix_micros(span.end))
    if recorded is None or not recorded.arrivals:
        raise NotFound(
            f"no session of group {span.group} waited from {span.begin.isoformat()} "
            f"to {span.end.isoformat()}",
            next_step="ask for another span; `moorage scheduler log` shows what was decided",
        )
    return recorded


def compare(cli: Cli, span: Span, recorded: Recorded, asked: dict[str, Policy], plot: Path | None) -> None:
    from moorage.manager.selector_plugins import Selectors
    from moorage.simulator.scheduler import figures
    from moorage.simulator.scheduler.replay import as_it_was, play

    selectors = Selectors()
    played = {"as it was": as_it_was(recorded)}
    for name, policy in asked.items():
        as_recorded = None if name == "recorded" else policy
        played[name] = play(recorded, as_recorded, selectors.load(policy.custom))
    found = {name: figures(each, (recorded.begin, recorded.end)) for name, each in played.items()}
    if plot is not None:
        devices = recorded.slot.endswith(".shares")
        what = recorded.slot.removesuffix(".shares") + " devices" if devices else "cores"
        draw(played, plot, what=what, each=1000)
    if cli.json:
        facts = {"group": span.group, "from": _time(recorded.begin), "to": _time(recorded.end)}
        cli.print_json(
            {name: _said(value) for name, value in facts.items()}
            | {"sessions": len(recorded.arrivals), "endless": recorded.endless, "used_of": recorded.slot}
            | {"policies": {name: asdict(each) for name, each in found.items()}}
        )
        return
    columns = (*COLUMNS[:-1], "NOT STARTED")
    output.print_table(
        cli.out, columns, [(*row(n, each)[:-1], str(each.unstarted)) for n, each in found.items()]
    )


def _remark(cli: Cli, recorded: Recorded, gaps: list[Gap]) -> None:
    """What the table does not know."""
    span = f"{_clock(recorded.begin)} to {_clock(recorded.end)}"
    cli.say(f"{len(recorded.arrivals)} sessions from {span}; USED is of {recorded.slot}")
    if recorded.endless:
        cli.say(f"{recorded.endless} had not ended, or not started, by then: they are played as running on")
    if recorded.cancelled:
        cli.say(f"{recorded.cancelled} left the queue without a place: not played")
    if recorded.unseen:
        cli.say(f"{recorded.unseen} kernels got a place in passes that are not kept: they run where they ran")
    if any(policy.preemption is not None for _, policy in recorded.policies):
        cli.say("sessions were stopped for others where that was needed; what is played stops nobody")
    if len(recorded.policies) > 1:
        cli.say(
            f"the group's options changed {len(recorded.policies) - 1} times: `recorded` changes with them"
        )
    if gaps:
        cli.say(f"{sum(gap.passes for gap in gaps)} passes in {len(gaps)} gaps were not kept")


def _check_selector(policy: Policy) -> None:
    from moorage.manager.selector_plugins import check
    from moorage.manager.store.groups import options_of

    check(options_of(policy))


def _clock(micros: int) -> str:
    return _shown(_time(micros))


def _shown(at: datetime) -> str:
    return f"{at.astimezone():%m-%d %H:%M:%S.%f}"[:-3]
