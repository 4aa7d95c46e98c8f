"""``moorage budgets`` and ``moorage prices``: limits on usage per period, and the price of
usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from moorage.cli import output, times
from moorage.cli.app import list_command, noun
from moorage.cli.completion import group_names, scoped_names
from moorage.cli.context import Cli, command
from moorage.cli.money import currency_of
from moorage.cli.output import printable
from moorage.common.model.budget_units import format_budget_amount, parse_budget_amount
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.budgets import BudgetView, PriceView
    from moorage.sdk import Client

budgets = noun(
    "budgets", help="Budgets of projects, users and keys: how much each may use per period."
)
prices = noun("prices", help="Prices per unit, with the date each applies from.")

ScopeName = Annotated[str, typer.Argument(metavar="SCOPE", help="project, user or key.")]
Name = Annotated[
    str, typer.Argument(help="Name of the project, user or key.", autocompletion=scoped_names)
]
UnitName = Annotated[
    str,
    typer.Argument(
        metavar="UNIT",
        help=(
            "gpu, cpu or node (hours), memory (GiB-hours), requests, tokens, tokens_in, "
            "tokens_out, money."
        ),
    ),
]
PeriodName = Annotated[str, typer.Option("--period", help="day, week, month or year, in UTC.")]


@list_command(budgets)
def list_budgets(cli: Cli) -> None:
    """List budgets with their usage and reset date."""

    async def work(client: Client) -> tuple[list[BudgetView], str]:
        found = await client.budgets.list()
        return list(found), await currency_of(client, [view.unit for view in found])

    found, currency = cli.run(work)
    _print(cli, found, currency)


@command(budgets, "set")
def set_budget(
    cli: Cli,
    scope: ScopeName,
    name: Name,
    unit: UnitName,
    hard: Annotated[
        str | None,
        typer.Option(help="Amount that stops new sessions and requests until the period ends."),
    ] = None,
    soft: Annotated[str | None, typer.Option(help="Amount from which a warning is shown.")] = None,
    period: PeriodName = "month",
    stop: Annotated[
        bool,
        typer.Option(
            "--stop", help="At the hard limit, also stop running sessions, replicas included."
        ),
    ] = False,
) -> None:
    """Set a budget, replacing the one for that unit and period. For administrators.

    \b
    Examples:
      moorage budgets set project vision gpu --hard 500 --soft 400
      moorage budgets set user ann tokens --hard 1000000 --period day
      moorage budgets set key ci money --hard 25.50 --stop
    """
    from moorage.common.views.budgets import BudgetSpec

    key = _key(scope, unit, period)
    if hard is None and soft is None:
        raise InvalidInput("no limit was given", next_step="give --hard, --soft or both")

    spec = BudgetSpec(
        hard=None if hard is None else parse_budget_amount(unit, hard),
        soft=None if soft is None else parse_budget_amount(unit, soft),
        policy="stop" if stop else "continue",
    )

    async def work(client: Client) -> tuple[BudgetView, str]:
        set_now = await client.budgets.set(key[0], name, key[1], key[2], spec=spec)
        return set_now, await currency_of(client, [unit])

    view, currency = cli.run(work)
    _print(cli, [view], currency, single=True)


@command(budgets, "delete")
def delete_budget(
    cli: Cli, scope: ScopeName, name: Name, unit: UnitName, period: PeriodName = "month"
) -> None:
    """Delete a budget with its limits. For administrators."""
    key = _key(scope, unit, period)
    deleted = cli.run(lambda client: client.budgets.delete(key[0], name, key[1], key[2]))
    if cli.json:
        cli.print_json(deleted)
    else:
        print(f"{deleted.scope}/{deleted.name}")


@list_command(prices)
def list_prices(cli: Cli) -> None:
    """List all prices, including past and future ones."""

    async def work(client: Client) -> tuple[list[PriceView], Sequence[str], str]:
        prices = client.prices
        return await prices.list(), await prices.warnings(), await prices.currency()

    found, warnings, currency = cli.run(work)
    _print_prices(cli, found, currency)
    _warn(cli, warnings)


@command(prices, "set")
def set_price(
    cli: Cli,
    unit: Annotated[
        str,
        typer.Argument(
            metavar="UNIT",
            help="gpu, cpu, node (per hour), memory (per GiB-hour), requests, tokens_in, "
            "tokens_out, tokens_cached (per million).",
        ),
    ],
    price: Annotated[str, typer.Argument(help="Price in the currency, with up to six decimals.")],
    device: Annotated[str, typer.Option(help="Only for this model of GPU, like H100.")] = "",
    group: Annotated[
        str,
        typer.Option(
            "--group", "-g", help="Only in this resource group.", autocompletion=group_names
        ),
    ] = "",
    since: Annotated[
        str | None,
        typer.Option(
            help="Full hour from which it applies, like 2026-12-01T00:00:00Z. Default: this hour."
        ),
    ] = None,
) -> None:
    """Set a price from a given hour. Prices of past hours never change. For administrators.

    \b
    Examples:
      moorage prices set gpu 2.50 --device H100
      moorage prices set tokens_out 0.60 --since 2026-12-01T00:00:00Z
    """
    from moorage.common.views.budgets import PriceSpec, Unit

    if unit not in get_args(Unit):
        raise InvalidInput(
            f"UNIT {unit!r} is unknown", next_step=f"use one of: {', '.join(get_args(Unit))}"
        )

    spec = PriceSpec(
        unit=cast("Unit", unit),
        price=parse_budget_amount("money", price),
        device=device,
        resource_group=group,
        since=None if since is None else times.future(since, cli.clock.now(), "--since"),
    )

    async def work(client: Client) -> tuple[PriceView, str]:
        return await client.prices.set(spec), await client.prices.currency()

    view, currency = cli.run(work)
    _print_prices(cli, [view], currency, single=True)
    _warn(cli, view.warnings)


def _warn(cli: Cli, warnings: Sequence[str]) -> None:
    for text in warnings:
        cli.note(printable(f"warning: {text}", one_line=True))


def _key(scope: str, unit: str, period: str) -> tuple[Any, Any, Any]:
    from moorage.common.views.budgets import BudgetScope, BudgetUnit, Period

    allowed = (
        ("SCOPE", scope, BudgetScope),
        ("UNIT", unit, BudgetUnit),
        ("--period", period, Period),
    )
    for what, given, kind in allowed:
        if given not in get_args(kind):
            raise InvalidInput(
                f"{what} {given!r} is unknown", next_step=f"use one of: {', '.join(get_args(kind))}"
            )

    return scope, unit, period


def _print(cli: Cli, found: list[BudgetView], currency: str, *, single: bool = False) -> None:
    if cli.json:
        cli.print_json(found[0] if single else {"budgets": found})
    elif not found:
        cli.note("there is no budget; `moorage budgets set` creates one")
    else:
        rows = [
            (
                view.scope,
                view.name,
                view.unit,
                view.period,
                format_budget_amount(view.unit, view.used, currency),
                "-" if view.soft is None else format_budget_amount(view.unit, view.soft, currency),
                "-" if view.hard is None else format_budget_amount(view.unit, view.hard, currency),
                "-" if view.hard is None else view.policy,
                {"ok": "ok", "soft": "above soft", "hard": "exhausted"}[view.level],
                f"{view.resets_at:%Y-%m-%dT%H:%MZ}",
            )
            for view in found
        ]
        titles = (
            "SCOPE",
            "NAME",
            "UNIT",
            "PERIOD",
            "USED",
            "SOFT",
            "HARD",
            "POLICY",
            "STATE",
            "RESETS",
        )
        output.print_table(cli.out, titles, rows)

    for view in found:
        named = "" if single else f"{view.scope}/{view.name} {view.unit}: "
        _warn(cli, [f"{named}{text}" for text in view.warnings])


def _print_prices(cli: Cli, found: list[PriceView], currency: str, *, single: bool = False) -> None:
    if cli.json:
        cli.print_json(found[0] if single else {"prices": found})
    elif not found:
        cli.note("no prices are set, so everything is free; `moorage prices set` sets one")
    else:
        rows = [
            (
                view.unit,
                view.device or "-",
                view.resource_group or "-",
                f"{view.since:%Y-%m-%dT%H:%MZ}",
                f"{view.price / 1_000_000:.6f}".rstrip("0").rstrip("."),
            )
            for view in found
        ]
        price = f"PRICE ({currency})" if currency else "PRICE"
        output.print_table(cli.out, ("UNIT", "DEVICE", "GROUP", "SINCE", price), rows)
