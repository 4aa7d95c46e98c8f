"""``moorage usage``: models' tokens and sessions' time, by project, user, key, session and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast, get_args

import typer

from moorage.cli import output, times
from moorage.cli.app import app
from moorage.cli.completion import endpoint_names, key_names, project_names, user_names
from moorage.cli.context import Cli, command
from moorage.cli.money import currency_of
from moorage.common.model.budget_units import format_budget_amount
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.budgets import BudgetView
    from moorage.common.views.metering import Bucket, Dimension, ModelUsage
    from moorage.sdk import Client

_COLUMNS = {
    "project": "PROJECT",
    "user": "USER",
    "key": "KEY",
    "model": "MODEL",
    "endpoint": "ENDPOINT",
    "session": "SESSION",
    "resource_group": "GROUP",
    "device": "DEVICE",
}
_HOUR_MS = 3_600_000
_GIB_HOUR = 1024 * 3600
_AMOUNTS = (
    "requests",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "gpu_ms",
    "cpu_ms",
    "memory_mib_s",
    "node_ms",
    "cost",
)
_CSV: dict[str, tuple[str, ...]] = {"key": ("key_id", "key"), "session": ("session_id",)}
_FORMATS = {
    "hour": "%Y-%m-%d %H:00",
    "day": "%Y-%m-%d",
    "week": "%G-W%V",
    "month": "%Y-%m",
    "year": "%Y",
}


By = Annotated[str, typer.Option(help=f"Separated by commas: {', '.join(_COLUMNS)}.")]
BucketName = Annotated[
    str, typer.Option(help="Split by hour, day, week, month or year, in UTC; none: one total.")
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Start of the period: a time like 2026-05-04T13:00, or 7d (ago). Default: 1d.",
    ),
]
To = Annotated[
    str | None, typer.Option("--to", help="End of the period, written like --from. Default: now.")
]
Project = Annotated[
    str | None, typer.Option(help="Only usage of this project.", autocompletion=project_names)
]
User = Annotated[
    str | None, typer.Option(help="Only usage of this user.", autocompletion=user_names)
]
Key = Annotated[str | None, typer.Option(help="Only usage of this key.", autocompletion=key_names)]
Model = Annotated[
    str | None, typer.Option(help="Only usage of this model.", autocompletion=endpoint_names)
]
Csv = Annotated[
    bool, typer.Option("--csv", help="Print comma-separated values with exact amounts.")
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=100_000, help="The most lines to show.")
]


@command(app)
def usage(
    cli: Cli,
    by: By = "project,model",
    bucket: BucketName = "none",
    begin: From = None,
    end: To = None,
    project: Project = None,
    user: User = None,
    key: Key = None,
    model: Model = None,
    limit: Limit = 1000,
    csv: Csv = False,
) -> None:
    """Show the past usage of requests and sessions, in whole hours.

    The ledger counts requests and tokens of models, and hours of GPUs, CPUs, memory (GiB) and nodes
    of sites. The usage of running sessions until now is included.

    \b
    Examples:
      moorage usage
      moorage usage --by key,model --from 7d --bucket day
      moorage usage --by session --model qwen
      moorage usage --by project,device --from 30d --bucket month --csv > usage.csv
      moorage usage --from 30d -o json | jq '.usage[] | [.project, .gpu_ms]'
    """
    split = _split(by, bucket)
    now = cli.clock.now()
    since = None if begin is None else times.past(begin, now, "--from")
    until = None if end is None else times.past(end, now, "--to")

    async def work(client: Client) -> tuple[list[ModelUsage], str]:
        reached = [budget for budget in await client.budgets.list() if budget.level != "ok"]
        for budget in reached:
            cli.note(_warning(budget, await currency_of(client, [budget.unit])))

        found = await client.usage.list(
            since=since,
            until=until,
            by=split,
            bucket=cast("Bucket", bucket),
            project=project,
            user=user,
            key=key,
            model=model,
            limit=limit + 1,
        )
        if len(found) > limit:
            cli.note(f"only the first {limit} lines are shown; --limit shows more")

        units = ["money"] if any(view.cost for view in found) else []
        return found[:limit], await currency_of(client, units)

    found, currency = cli.run(work)
    _show(cli, found, Shown(split, bucket, currency), csv=csv)


def _warning(budget: BudgetView, currency: str) -> str:
    used = budget.used
    limit = budget.hard if budget.level == "hard" else budget.soft
    amounts = (
        f"{format_budget_amount(budget.unit, used, currency)} of "
        f"{format_budget_amount(budget.unit, limit or 0, currency)}"
    )

    return (
        f"moorage: warning: {budget.scope} {budget.name} has used {amounts}, its {budget.level} "
        f"limit of {budget.unit} by the {budget.period}; it resets at "
        f"{budget.resets_at:%Y-%m-%dT%H:%MZ}"
    )


class Shown(NamedTuple):
    """How usage is split, and the currency of costs."""

    split: list[Dimension]
    bucket: str
    currency: str


def _show(cli: Cli, found: list[ModelUsage], shown: Shown, *, csv: bool) -> None:
    split, bucket, currency = shown
    if cli.json:
        cli.print_json({"usage": found})
    elif csv:
        _print_csv(found, split, bucket)
    elif not found:
        cli.note("there is no usage in this period")
    else:
        columns = (
            *([bucket.upper()] if bucket != "none" else []),
            *(_COLUMNS[name] for name in split),
        )
        amounts = [
            "REQUESTS",
            "TOKENS IN",
            "CACHED",
            "TOKENS OUT",
            "GPU H",
            "CPU H",
            "GIB H",
            "NODE H",
        ]
        rows = [_row(view, split, bucket) for view in found]
        if any(view.cost for view in found):
            amounts.append(f"COST ({currency})" if currency else "COST")
            rows = [
                [*row, f"{view.cost / 1_000_000:.2f}"]
                for row, view in zip(rows, found, strict=True)
            ]

        output.print_table(cli.out, (*columns, *amounts), rows)


def _split(by: str, bucket: str) -> list[Any]:
    from moorage.common.views.metering import Bucket

    names = [name.strip() for name in by.split(",") if name.strip()]
    if unknown := [name for name in names if name not in _COLUMNS]:
        raise InvalidInput(
            f"--by {unknown[0]!r} is unknown", next_step=f"use {', '.join(_COLUMNS)}"
        )

    if bucket not in get_args(Bucket):
        raise InvalidInput(
            f"--bucket {bucket!r} is unknown", next_step=f"use {', '.join(get_args(Bucket))}"
        )

    return names


def _row(view: ModelUsage, split: list[Dimension], bucket: str) -> list[str]:
    names = {
        "project": view.project,
        "user": view.user,
        "key": view.key or view.key_id,
        "model": view.model,
        "endpoint": view.endpoint,
        "session": view.session_id,
        "resource_group": view.resource_group,
        "device": view.device,
    }
    row = [] if bucket == "none" or view.at is None else [view.at.strftime(_FORMATS[bucket])]
    row += [names[name] or "-" for name in split]
    row += [str(n) for n in (view.requests, view.tokens_in, view.tokens_cached, view.tokens_out)]
    hours = (
        (view.gpu_ms, _HOUR_MS),
        (view.cpu_ms, _HOUR_MS),
        (view.memory_mib_s, _GIB_HOUR),
        (view.node_ms, _HOUR_MS),
    )

    return row + [f"{amount / hour:.2f}" for amount, hour in hours]


def _print_csv(found: list[ModelUsage], split: list[Dimension], bucket: str) -> None:
    """Print CSV with the names and the units of the REST API."""
    import csv
    import sys

    names = (["at"] if bucket != "none" else []) + [
        column for name in split for column in _CSV.get(name, (name,))
    ]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*names, *_AMOUNTS])

    for view in found:
        fields = view.model_dump(mode="json")
        writer.writerow(
            ["" if fields[name] is None else fields[name] for name in (*names, *_AMOUNTS)]
        )
