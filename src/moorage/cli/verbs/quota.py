"""``moorage quota``: what users, projects and resource groups may have, shown and set."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from moorage.cli import parse, render
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, verb
from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import QuotaLimits, Scope
from moorage.common.model.slots import format_amount
from moorage.common.views.resources import QuotaView
from moorage.sdk import ApiError, Client

quota = typer.Typer(no_args_is_help=True)
app.add_typer(quota, name="quota", help="What users, projects and resource groups may have at once.")

_SCOPES = ("user", "project", "group")
_COUNTS = ("sessions", "pending")
Whose = Annotated[str, typer.Argument(metavar="SCOPE", help="user, project or group.")]
Name = Annotated[str, typer.Argument(help="Of the user, the project or the resource group.")]


@verb(quota, "ls")
def list_quotas(cli: Cli) -> None:
    """List quotas, and what is used of them."""
    _print(cli, cli.run(lambda client: client.list_quotas()))


@verb(quota, "set")
def set_quota(
    cli: Cli,
    scope: Whose,
    name: Name,
    limits: Annotated[
        list[str] | None,
        typer.Argument(help="SLOT=AMOUNT, sessions=N, pending=N; 0: none at all; `none`: no limit."),
    ] = None,
) -> None:
    """Set what one may have at once; what is not given stays as it is. For administrators.

    \b
    Examples:
      moorage quota set user ann cuda.device=4 sessions=10 pending=100
      moorage quota set group default mem=2TiB
      moorage quota set project vision cuda.device=none
    """
    given = parse.pairs(limits or [], "SLOT=AMOUNT", "cuda.device=4")
    if not given:
        raise InvalidInput("no limit was given", next_step="see `moorage quota set --help`")

    async def work(client: Client) -> QuotaView:
        asked: dict[str, Any] = {"slots": {}}
        try:
            old = await client.get_quota(_scope(scope), name)
            shown = {slot: show_exactly(slot, amount) for slot, amount in old.slots.items()}
            asked = {"slots": shown, "sessions": old.sessions, "pending": old.pending}
        except ApiError as error:
            if error.status != 404:
                raise
        for key, text in given.items():
            value = None if text == "none" else text
            if key in _COUNTS:
                asked[key] = value
            elif value is None:
                asked["slots"].pop(key, None)
            else:
                asked["slots"][key] = value
        return await client.set_quota(_scope(scope), name, QuotaLimits.model_validate(asked))

    _print(cli, [cli.run(work)], one=True)


@verb(quota, "rm")
def remove_quota(cli: Cli, scope: Whose, name: Name) -> None:
    """Take a quota away: no limit any more. For administrators."""
    gone = cli.run(lambda client: client.delete_quota(_scope(scope), name))
    if cli.json:
        cli.print_json(gone)
    else:
        print(f"{gone.scope}/{gone.name}")


def show_exactly(slot: str, amount: int) -> str | int:
    """As requests write it, nothing rounded: bytes are numbers."""
    return amount if slot == "mem" else format_amount(slot, amount)


def _scope(given: str) -> Scope:
    if given not in _SCOPES:
        raise InvalidInput(f"{given!r} has no quota", next_step=f"one of: {', '.join(_SCOPES)}")
    return cast(Scope, given)


def _print(cli: Cli, found: list[QuotaView], *, one: bool = False) -> None:
    if cli.json:
        cli.print_json(found[0] if one else {"quotas": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(f"{view.scope}/{view.name}")
    elif not found:
        cli.say("there is no quota: everybody may have everything; `moorage quota set` makes one")
    else:
        rows = [
            (
                view.scope,
                view.name,
                _part(view.running, view.sessions),
                _part(view.waiting, view.pending),
                _slots(view),
            )
            for view in found
        ]
        render.print_table(cli.out, ("SCOPE", "NAME", "SESSIONS", "PENDING", "SLOTS"), rows)


def _part(used: int, limit: int | None) -> str:
    return f"{used}/{'-' if limit is None else limit}"


def _slots(view: QuotaView) -> str:
    """What is used of each limit."""
    return " ".join(
        f"{slot}={format_amount(slot, view.used.get(slot, 0))}/{format_amount(slot, limit)}"
        for slot, limit in sorted(view.slots.items())
    )
