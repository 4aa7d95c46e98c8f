"""``moorage agent forget``. ``moorage.server.commands.daemons`` adds the daemon itself."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli.app import app
from moorage.cli.context import Cli, verb

agent = typer.Typer(no_args_is_help=True)
app.add_typer(
    agent,
    name="agent",
    help="An agent alone: runs kernels on this node. With a verb: look after known agents.",
)


@verb(agent)
def forget(
    cli: Cli, agent_id: Annotated[str, typer.Argument(help="An agent that is SUSPECT or LOST.")]
) -> None:
    """Give up an agent that does not come back, or whose node was reinstalled: its id is free at once.

    Sessions that ran there end as agent-lost. For an administrator; refused while the agent is ALIVE.

    \b
    Examples:
      moorage agent forget node-7
    """
    gone = cli.run(lambda client: client.forget_agent(agent_id))
    if cli.json:
        cli.print_json(gone)
    else:
        print(gone.id)
