"""``moorage limits``: request limits per key, project and model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import output, parse
from moorage.cli.app import list_command, noun
from moorage.cli.completion import scoped_names
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput

if TYPE_CHECKING:
    from moorage.common.views.metering import LimitUse, LimitView
    from moorage.sdk import Client

limits = noun("limits", help="Request limits per key, project and model.")

_SCOPES = ("key", "project", "model")
# Names on the command line, and the API's names for them.
_NAMES = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "concurrent": "concurrent_requests",
}


@list_command(limits)
def list_limits(cli: Cli) -> None:
    """List limits, and how much of each is in use: in the last 60 seconds, and at this moment."""
    found = cli.run(lambda client: client.limits.list())
    if cli.json:
        cli.print_json({"limits": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(f"{view.scope}/{view.name}")
    elif not found:
        cli.note("nothing is limited; `moorage limits set` sets a limit")
    else:
        columns = ("SCOPE", "NAME", "PROJECT", "REQUESTS/MIN", "TOKENS/MIN", "CONCURRENT")
        output.print_table(cli.out, columns, [_row(view) for view in found])


@command(limits, "set")
def set_limits(
    cli: Cli,
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="key, project or model.")],
    name: Annotated[
        str, typer.Argument(help="Name of the key, project or model.", autocompletion=scoped_names)
    ],
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LIMIT=N...",
            help=(
                "requests=N and tokens=N per minute, concurrent=N at a time; 0 allows none, `none` "
                "any number."
            ),
        ),
    ] = None,
) -> None:
    """Set request limits of a key, a project or a model; other limits stay.

    A request must stay within the limits of its key, its project and its model.

    \b
    Examples:
      moorage limits set key ci requests=60 tokens=100000
      moorage limits set project vision concurrent=20
      moorage limits set model qwen concurrent=64 tokens=none
    """
    fields = _fields(given or [])
    if scope not in _SCOPES:
        raise InvalidInput(
            f"SCOPE {scope!r} is not allowed", next_step=f"use one of: {', '.join(_SCOPES)}"
        )

    cli.run(lambda client: _set(client, scope, name, fields))
    if cli.json:
        cli.print_json({"scope": scope, "name": name, **fields})
    else:
        print(f"{scope}/{name}")


async def _set(client: Client, scope: str, name: str, fields: dict[str, Any]) -> None:
    from moorage.common.views.endpoints import EndpointPatch
    from moorage.common.views.identity import ProjectPatch
    from moorage.common.views.keys import KeyLimits

    if scope == "key":
        await client.keys.update(name, KeyLimits.model_validate(fields))
    elif scope == "project":
        await client.projects.update(name, ProjectPatch.model_validate(fields))
    else:
        await client.endpoints.update(name, EndpointPatch(limits=fields))


def _fields(given: list[str]) -> dict[str, Any]:
    texts = parse.pairs(given, "LIMIT=N", "requests=60")
    if not texts:
        raise InvalidInput("no limit was given", next_step="see `moorage limits set --help`")

    fields: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in _NAMES:
            raise InvalidInput(
                f"there is no limit {name!r}", next_step=f"limits are {', '.join(_NAMES)}"
            )

        fields[_NAMES[name]] = parse.limit(text, name)

    return fields


def _row(view: LimitView) -> list[str]:
    uses = view.requests_per_minute, view.tokens_per_minute, view.concurrent_requests
    return [view.scope, view.name, view.project, *map(_used_of, uses)]


def _used_of(use: LimitUse | None) -> str:
    return "" if use is None else f"{use.used}/{use.limit}"
