"""``moorage rename``: gives a session another name."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.app import app
from moorage.cli.completion import session_names
from moorage.cli.context import Cli, Output, command


@command(app)
def rename(
    cli: Cli,
    session: Annotated[
        str, typer.Argument(help="A session's name or id.", autocompletion=session_names)
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
) -> None:
    """Rename a session. It keeps running under the same id; its program keeps the former name.

    Models cannot be renamed, because requests find them by name.

    \b
    Examples:
      moorage rename train-7 baseline
    """
    view = cli.run(lambda client: client.sessions.rename(session, name))
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME:
        print(view.name)
    else:
        print(f"{session} is now called {view.name}")
