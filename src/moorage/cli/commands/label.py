"""``moorage label``: changes the labels of a session or an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.completion import workload_names
from moorage.cli.context import Cli, Output, command
from moorage.cli.lookup import find
from moorage.cli.output import labels_cell
from moorage.common.model.errors import InvalidInput
from moorage.common.views.endpoints import EndpointPatch, EndpointView
from moorage.common.views.resources import SessionView

if TYPE_CHECKING:
    from moorage.sdk import Client


@command(app)
def label(
    cli: Cli,
    name: Annotated[
        str,
        typer.Argument(
            help="An endpoint, or a session's name or id.", autocompletion=workload_names
        ),
    ],
    changes: Annotated[list[str], typer.Argument(help="KEY=VALUE sets a label; KEY- removes it.")],
) -> None:
    """Change the labels of a session or an endpoint. Other labels stay, and nothing restarts.

    \b
    Examples:
      moorage label tiny team=vision stage-
    """
    labels = dict(map(label_change, changes))

    async def work(client: Client) -> EndpointView | SessionView:
        found = await find(client, name)
        if isinstance(found, EndpointView):
            patch = EndpointPatch(user_labels=labels)
            return await client.endpoints.update(found.name, patch, version=found.version)
        return await client.sessions.label(found.id, labels)

    view = cli.run(work)
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    else:
        print(f"{view.name} {labels_cell(view.user_labels) or 'has no labels'}")


def label_change(text: str) -> tuple[str, str | None]:
    """The label that an argument sets, or removes. Raises ``InvalidInput``."""
    key, equals, value = text.partition("=")
    if equals and key:
        return key, value
    if text.endswith("-") and len(text) > 1:
        return text.removesuffix("-"), None
    raise InvalidInput(
        f"{text[:60]!r} does not change a label",
        next_step="write KEY=VALUE, or KEY- to remove a label",
    )
