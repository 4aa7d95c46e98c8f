"""``moorage extend``: keeps an interactive session that would end because it is idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.completion import session_names
from moorage.cli.context import Cli, Output, command, duration_option
from moorage.cli.output import print_facts
from moorage.common.model.durations import format_duration

if TYPE_CHECKING:
    from moorage.common.views.idle import IdleView


@command(app)
def extend(
    cli: Cli,
    session: Annotated[
        str,
        typer.Argument(
            help="A running interactive session, by name or id.", autocompletion=session_names
        ),
    ],
    by: Annotated[
        float | None,
        duration_option(
            "Minimum time to keep it from now on. Default: the longest time allowed.", "--for"
        ),
    ] = None,
) -> None:
    """Keep a session that would end because it is idle.

    Its resource group limits the length and the number of extensions.

    \b
    Examples:
      moorage extend dev
      moorage extend dev --for 30m
    """
    view = cli.run(lambda client: client.sessions.extend(session, by))
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(session)
    else:
        print_facts(cli.out, idle_facts(view))


def idle_facts(view: IdleView | None) -> list[tuple[str, str]]:
    """When the session ends, and the state of each criterion."""
    if view is None or not view.criteria:
        return []

    criteria = ", ".join(
        f"{criterion.name} {_left(criterion.remaining_s)}" for criterion in view.criteria
    )
    ends = (
        "not soon" if view.ends_in_s is None else f"in {_left(view.ends_in_s)} by {view.criterion}"
    )
    warned = f"; warned: use it, or `moorage extend {view.session_id}`" if view.warned else ""
    used = f"{view.extensions} of {view.max_extensions} used" if view.max_extensions else ""

    return [
        ("idle end", ends + warned),
        (f"criteria ({view.end_when})", criteria),
        ("extensions", used),
    ]


def _left(seconds: float | None) -> str:
    return "never" if seconds is None else format_duration(max(0.0, seconds))
