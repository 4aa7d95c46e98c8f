"""``moorage scheduler replay``: recorded work under other policies, with more agents or other
quotas, and verification of recorded decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import Cli, command, output, parse
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.model.group_options import GroupOptions
from moorage.common.views.decisions import RunView
from moorage.server.commands.scheduler.comparison import print_comparison, save_plot
from moorage.server.commands.scheduler.group import scheduler
from moorage.server.commands.scheduler.log import (
    From,
    Group,
    Last,
    LogSpan,
    To,
    fetch_span,
    format_micros,
    to_datetime,
)
from moorage.server.commands.scheduler.what_if import (
    AddAgents,
    AddGpus,
    Like,
    QuotaTexts,
    parse_changes,
    print_waits,
    waits_to_json,
)
from moorage.server.process import needs_extra

if TYPE_CHECKING:
    from moorage.manager.decision_log import Gap, RecordedPass
    from moorage.manager.decision_log.timeline import Difference
    from moorage.manager.scheduling import Policy
    from moorage.sdk import Client
    from moorage.simulator.scheduler.trace import Trace

_MAX_DIFFERENCES = 20  # shown in the table
_OBSERVED = "observed"
_RECORDED = "recorded"
_CHANGED = "changed"
# The named policies from `scheduler simulate`, as changes to the recorded policy.
_NAMED_POLICIES = {
    "strict": "hol=strict",
    "skip": "hol=skip",
    "greedy": "hol=skip max_bypasses=none max_skip_age_s=none",
    "backfill": "hol=backfill",
    "lifo": "strategy=lifo",
    "drf": "strategy=drf",
}


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
            help="Policy to simulate: strict, skip, greedy, backfill, lifo, drf; or options of a "
            "group as for `groups set`, like 'hol=skip max_bypasses=10'; other options stay as "
            "recorded. Repeatable, or separated by commas."
        ),
    ] = None,
    add_agents: AddAgents = 0,
    add_gpus: AddGpus = 0,
    like: Like = None,
    quota: QuotaTexts = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Repeat the planning of each recorded pass, and compare the decisions."
        ),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Save a plot of waits and utilization as .png or .svg.")
    ] = None,
) -> None:
    """Simulate recorded work under other policies, with more agents or other quotas. Administrators
    only.

    \b
    Examples:
      moorage scheduler replay --last 1h --policy strict,backfill
      moorage scheduler replay --from 13:00 --to 15:00 --policy drf --policy 'hol=skip'
      moorage scheduler replay --last 1d --add-gpus 16 --like gpu-03
      moorage scheduler replay --last 1d --quota 'user ann cuda.device=8' --policy drf
      moorage scheduler replay --last 10m --verify
    """
    _check_policies(policy or [])
    changes = parse_changes(add_agents, add_gpus, like, quota or [])
    if verify and (policy or plot or changes):
        raise InvalidInput(
            "--verify cannot be combined with --policy, --plot or any change",
            next_step="leave one of them out",
        )

    span = fetch_span(cli, group, begin=begin, end=end, last=last)
    if verify:
        raise typer.Exit(_verify(cli, span))

    gaps: list[Gap] = []
    trace = _fetch_trace(cli, span, gaps)
    policies = {_RECORDED: trace.latest_policy} | parse_policies(policy or [], trace.latest_policy)
    for each in policies.values():
        _check_selector(each)

    changed, words = changes.apply(trace)
    _compare(cli, span, trace=trace, changed=changed, policies=policies, plot=plot)
    _print_notes(cli, trace, gaps)
    if words:
        cli.note(f"all but `{_OBSERVED}` and `{_RECORDED}` have {words}")


def _check_policies(texts: list[str]) -> None:
    """Refuse malformed options before any request to the manager. Raises ``InvalidInput`` or
    ``ValidationError``."""
    with needs_extra("manager"):
        from moorage.manager.scheduling import Policy

    parse_policies(texts, Policy())


def parse_policies(texts: list[str], recorded: Policy) -> dict[str, Policy]:
    """Policies by their text on the command line; options that the text omits are taken from
    ``recorded``.

    Raises ``InvalidInput`` or ``ValidationError``, naming the option."""
    from moorage.manager.store.groups.repository import options_of, policy_of

    recorded_options = options_of(recorded).model_dump(mode="json")
    policies = {}
    for text in texts:
        names = (
            [text] if "=" in text else [name.strip() for name in text.split(",") if name.strip()]
        )
        for name in names or [text]:
            if "=" not in name and name not in _NAMED_POLICIES:
                raise InvalidInput(
                    f"unknown --policy {name!r}",
                    next_step=(
                        f"use {', '.join(_NAMED_POLICIES)}, or options like 'hol=skip "
                        "max_bypasses=10'"
                    ),
                )

            changes = _NAMED_POLICIES.get(name, name).split()
            options = parse.options(changes, GroupOptions, recorded_options)
            policies[name] = policy_of(GroupOptions.model_validate(options))

    return policies


def _check_selector(policy: Policy) -> None:
    from moorage.manager.selector_plugins import check
    from moorage.manager.store.groups.repository import options_of

    check(options_of(policy))


def _fetch_trace(cli: Cli, span: LogSpan, gaps: list[Gap]) -> Trace:
    """The work recorded in the span; gaps are added to ``gaps``. Raises ``NotFound`` if there was
    no work."""
    from moorage.manager.decision_log import Gap
    from moorage.manager.decision_log.timeline import unix_micros
    from moorage.simulator.scheduler.recording import build_trace

    async def fetch_runs(client: Client) -> list[RunView]:
        return await client.decisions.runs(span.group, span.begin, span.end)

    def recorded_passes() -> Iterator[RecordedPass]:
        for entry in span.decisions():
            if isinstance(entry, Gap):
                gaps.append(entry)
            else:
                yield entry

    trace = build_trace(recorded_passes(), cli.run(fetch_runs), unix_micros(span.end))
    if trace is None or not trace.arrivals:
        raise NotFound(
            f"no session of group {span.group} was pending from {span.begin.isoformat()} "
            f"to {span.end.isoformat()}",
            next_step="choose another time span; `moorage scheduler log` shows the decisions",
        )

    return trace


def _compare(
    cli: Cli,
    span: LogSpan,
    trace: Trace,
    changed: Trace,
    *,
    policies: dict[str, Policy],
    plot: Path | None,
) -> None:
    """Compare policies. ``changed``: the trace for all policies except the recorded one."""
    from moorage.manager.selector_plugins import SelectorPlugins
    from moorage.simulator.scheduler import simulate, summarize
    from moorage.simulator.scheduler.simulation import observe

    selectors = SelectorPlugins()
    results = {_OBSERVED: observe(trace)}
    for name, policy in policies.items():
        # The recorded policy may have changed within the trace.
        override = None if name == _RECORDED else policy
        simulated = trace if name == _RECORDED else changed
        results[name] = simulate(simulated, override, selectors.load(policy.custom))

    if changed is not trace:
        custom = policies[_RECORDED].custom
        results[_CHANGED] = simulate(changed, None, selectors.load(custom))

    statistics = {name: summarize(result) for name, result in results.items()}
    if plot is not None:
        family, _, kind = trace.slot.rpartition(".")
        save_plot(results, plot, f"{family} devices" if kind == "shares" else "cores")

    simulated_results = {name: result for name, result in results.items() if name != _OBSERVED}
    if not cli.json:
        print_comparison(cli, statistics, last_column="UNSTARTED")
        if len(simulated_results) > 1:
            print_waits(cli, simulated_results)

        return

    assert trace.end is not None
    cli.print_json(
        {
            "group": span.group,
            "from": to_datetime(trace.begin).isoformat(),
            "to": to_datetime(trace.end).isoformat(),
            "sessions": len(trace.arrivals),
            "unknown_run_times": trace.unknown_run_times,
            "slot": trace.slot,
            "policies": {name: asdict(each) for name, each in statistics.items()},
            "waits": waits_to_json(simulated_results),
        }
    )


def _print_notes(cli: Cli, trace: Trace, gaps: list[Gap]) -> None:
    """Print the comparison's limits, which the table does not show."""
    assert trace.end is not None
    span = f"{format_micros(trace.begin)} to {format_micros(trace.end)}"
    cli.note(f"{len(trace.arrivals)} sessions from {span}; UTILIZATION is of {trace.slot}")

    if trace.unknown_run_times:
        cli.note(
            f"{trace.unknown_run_times} sessions of unknown run time: simulated as running until "
            "the end"
        )

    if trace.cancelled:
        cli.note(f"{trace.cancelled} sessions left the queue without starting: not simulated")
    if trace.unrecorded_starts:
        count = trace.unrecorded_starts
        cli.note(f"{count} kernels started in passes that were not recorded: fixed where they ran")
    if len(trace.policies) > 1:
        changes = len(trace.policies) - 1
        cli.note(f"the group's options changed {changes} times: `{_RECORDED}` changes with them")
    if gaps:
        cli.note(f"{sum(gap.passes for gap in gaps)} passes in {len(gaps)} gaps were not recorded")


def _verify(cli: Cli, span: LogSpan) -> int:
    """Repeat the planning of every recorded pass. Returns the exit code, which is 1 if a decision
    differs."""
    from moorage.manager.decision_log import Gap, differences
    from moorage.manager.selector_plugins import SelectorPlugins

    selectors = SelectorPlugins()
    passes = 0
    places = 0
    victims = 0
    skipped = 0
    not_recorded = 0
    found: list[Difference] = []
    for decision in span.decisions():
        if isinstance(decision, Gap):
            not_recorded += decision.passes
            continue

        custom = selectors.load(decision.policy.custom)
        if decision.policy.custom is not None and not custom:
            skipped += 1
            continue

        passes = passes + 1
        places = places + len(decision.places)
        victims += len(decision.victims)
        found += differences(decision, custom)

    if cli.json:
        listed = [asdict(each) | {"at": to_datetime(each.at).isoformat()} for each in found]
        counts = {
            "passes": passes,
            "places": places,
            "victims": victims,
            "skipped": skipped,
            "not_recorded": not_recorded,
        }
        cli.print_json({"group": span.group, **counts, "differences": listed})
    else:
        rows = [
            (
                format_micros(each.at),
                each.session_id,
                each.what,
                each.recorded or "-",
                each.planned or "-",
            )
            for each in found[:_MAX_DIFFERENCES]
        ]
        if rows:
            output.print_table(
                cli.out, ("TIME", "SESSION", "WHAT", "RECORDED", "PLANNED AGAIN"), rows
            )

        stopped = f" and {victims} preemptions" if victims else ""
        print(
            f"{passes} passes with {places} places{stopped} planned again: {len(found) or 'no'} "
            "differences"
        )

    if skipped:
        cli.note(f"{skipped} passes skipped: their agent selector is not installed here")
    if not_recorded:
        cli.note(f"{not_recorded} passes were not recorded")

    return 1 if found else 0
