"""``moorage load``: load of an endpoint over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from moorage.cli import output
from moorage.cli.app import app
from moorage.cli.completion import endpoint_names
from moorage.cli.context import Cli, command
from moorage.cli.load_lines import ENDPOINT_COLUMNS, endpoint_rows
from moorage.cli.load_options import From, StepName, To, read_period

if TYPE_CHECKING:
    from moorage.common.views.load import LoadStep


@command(app)
def load(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="An endpoint.", autocompletion=endpoint_names)],
    begin: From = "1h",
    end: To = None,
    step: StepName = None,
) -> None:
    """Show the load of an endpoint over time: requests, errors, tokens, first token, queue,
    replicas.

    Times are in UTC. A time without a sample has no line.

    \b
    Examples:
      moorage load qwen
      moorage load qwen --from 7d
      moorage load qwen --from 1d -o json | jq '.load.requests | add'
    """
    since, until = read_period(cli.clock.now(), begin, end)
    found = cli.run(
        lambda client: client.endpoints.load(
            name, since=since, until=until, step=cast("LoadStep | None", step)
        )
    )
    if cli.json:
        cli.print_json({"load": found})
    elif not found.at:
        cli.note("no samples were taken in this period")
    else:
        output.print_table(cli.out, ENDPOINT_COLUMNS, endpoint_rows(found))
