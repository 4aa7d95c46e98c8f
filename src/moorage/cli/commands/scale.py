"""``moorage scale``: sets the number of replicas of an endpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.app import app
from moorage.cli.completion import endpoint_names
from moorage.cli.context import Cli, Output, command
from moorage.common.model.errors import InvalidInput


@command(app)
def scale(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="An endpoint.", autocompletion=endpoint_names)],
    replicas: Annotated[int, typer.Argument(help="Number of replicas; 0 unloads the model.")],
) -> None:
    """Set the number of replicas of an endpoint. This also retries an endpoint that was given up
    after failures.

    \b
    Examples:
      moorage scale tiny 3
    """
    if not 0 <= replicas <= 1000:
        raise InvalidInput(
            f"{replicas} replicas are not allowed", next_step="give a number from 0 to 1000"
        )

    view = cli.run(lambda client: client.endpoints.scale(name, replicas))
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    else:
        scaled = view.spec is not None and view.spec.autoscale is not None
        wakes = f"; {'a request or ' if scaled else ''}`moorage scale {view.name} 1` wakes it"
        print(
            f"{view.name} is asleep" + wakes
            if replicas == 0
            else f"{view.name} {view.ready}/{view.replicas}"
        )
