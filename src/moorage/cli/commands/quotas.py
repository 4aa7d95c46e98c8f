"""``moorage quotas``: limits for users, projects and resource groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from moorage.cli import output, parse
from moorage.cli.app import list_command, noun
from moorage.cli.completion import scoped_names
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import QuotaLimits, QuotaScope
from moorage.common.model.slots import format_amount
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from moorage.common.views.resources import QuotaView
    from moorage.sdk import Client

quotas = noun("quotas", help="Limits for users, projects and resource groups.")

_SCOPES = ("user", "project", "group")
_COUNTS = ("sessions", "pending", "node_hours", "system_sessions")
ScopeName = Annotated[str, typer.Argument(metavar="SCOPE", help="user, project or group.")]
Name = Annotated[
    str,
    typer.Argument(
        help="Name of the user, project or resource group.", autocompletion=scoped_names
    ),
]


@list_command(quotas)
def list_quotas(cli: Cli) -> None:
    """List quotas and how much of each is in use."""
    _print(cli, cli.run(lambda client: client.quotas.list()))


@command(quotas, "set")
def set_quota(
    cli: Cli,
    scope: ScopeName,
    name: Name,
    limits: Annotated[
        list[str] | None,
        typer.Argument(
            help="SLOT=AMOUNT, sessions=N, pending=N, system_sessions=N, or node_hours=H per "
            "month; 0 allows nothing, `none` removes the limit."
        ),
    ] = None,
) -> None:
    """Set limits on concurrent or monthly use; other limits stay. For administrators.

    \b
    Examples:
      moorage quotas set user ann cuda.device=4 sessions=10 pending=100
      moorage quotas set group default mem=2TiB
      moorage quotas set project vision cuda.device=none
      moorage quotas set project vision node_hours=500
    """
    given = parse.pairs(limits or [], "SLOT=AMOUNT", "cuda.device=4")
    if not given:
        raise InvalidInput("no limit was given", next_step="see `moorage quotas set --help`")

    async def work(client: Client) -> QuotaView:
        limits_now: dict[str, Any] = {"slots": {}}
        version = None
        try:
            old = await client.quotas.get(_scope(scope), name)
            shown = {slot: show_exactly(slot, amount) for slot, amount in old.slots.items()}
            limits_now = {"slots": shown, **{field: getattr(old, field) for field in _COUNTS}}
            version = old.version
        except ApiError as error:
            if error.status != 404:
                raise

        for key, text in given.items():
            value = None if text == "none" else text
            if key in _COUNTS:
                limits_now[key] = value
            elif value is None:
                limits_now["slots"].pop(key, None)
            else:
                limits_now["slots"][key] = value

        limits = QuotaLimits.model_validate(limits_now)
        return await client.quotas.set(_scope(scope), name, limits, version=version)

    _print(cli, [cli.run(work)], single=True)


@command(quotas, "delete")
def delete_quota(cli: Cli, scope: ScopeName, name: Name) -> None:
    """Delete a quota with all its limits. For administrators."""
    deleted = cli.run(lambda client: client.quotas.delete(_scope(scope), name))
    if cli.json:
        cli.print_json(deleted)
    else:
        print(f"{deleted.scope}/{deleted.name}")


def show_exactly(slot: str, amount: int) -> str | int:
    """The amount as it is written in a request, without rounding; a size is a plain number of
    bytes."""
    return amount if slot == "mem" else format_amount(slot, amount)


def _scope(given: str) -> QuotaScope:
    if given not in _SCOPES:
        raise InvalidInput(
            f"SCOPE {given!r} is not allowed", next_step=f"use one of: {', '.join(_SCOPES)}"
        )
    return cast(QuotaScope, given)


def _print(cli: Cli, found: list[QuotaView], *, single: bool = False) -> None:
    if cli.output is Output.YAML:
        cli.print_manifests(found)
    elif cli.json:
        cli.print_json(found[0] if single else {"quotas": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(f"{view.scope}/{view.name}")
    elif not found:
        cli.note("there is no quota, so nothing is limited; `moorage quotas set` creates one")
    else:
        rows = [
            (
                view.scope,
                view.name,
                _used_of(view.running, view.sessions),
                _used_of(view.waiting, view.pending),
                _used_of(view.system_running, view.system_sessions),
                _slots(view),
                _node_hours(view),
            )
            for view in found
        ]
        output.print_table(
            cli.out, ("SCOPE", "NAME", "SESSIONS", "PENDING", "SYSTEM", "SLOTS", "NODE-HOURS"), rows
        )


def _used_of(used: int, limit: int | None) -> str:
    return f"{used}/{'-' if limit is None else limit}"


def _node_hours(view: QuotaView) -> str:
    """Node-hours of this month, such as 12.5+4/100: used, reserved by live jobs, and the limit."""
    if view.node_hours is None:
        return "-"
    reserved = f"+{view.node_hours_reserved:.10g}" if view.node_hours_reserved else ""
    return f"{view.node_hours_used:.10g}{reserved}/{view.node_hours:.10g}"


def _slots(view: QuotaView) -> str:
    """Each limited slot as used/limit."""
    return " ".join(
        f"{slot}={format_amount(slot, view.used.get(slot, 0))}/{format_amount(slot, limit)}"
        for slot, limit in sorted(view.slots.items())
    )
