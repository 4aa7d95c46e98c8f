"""``moorage mcp``: a Model Context Protocol server for coding agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.app import app
from moorage.cli.context import Cli, command
from moorage.common.model.errors import StartupError

if TYPE_CHECKING:
    from moorage.sdk import Client


@command(app)
def mcp(
    cli: Cli,
    gpu_hours: Annotated[
        float | None,
        typer.Option(
            "--gpu-hours",
            min=0,
            help="Budget in GPU hours for created sessions. Default: no limit.",
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer no tools that write.")
    ] = False,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tools",
            metavar="NAME[,NAME]",
            help="Offer only these tools, or groups of tools like sessions,endpoints.",
        ),
    ] = None,
) -> None:
    """Serve the cluster's operations to a coding agent, over MCP on standard input and output.

    Every change is planned first: a write needs the id of a plan, which the agent can show to its
    user. With --gpu-hours, sessions must have a time limit, and open-ended work is refused.

    \b
    Examples:
      claude mcp add moorage -- moorage mcp --gpu-hours 20
      codex mcp add moorage -- moorage mcp --read-only
      claude mcp add moorage -- moorage mcp --tools sessions,list_groups
    """
    try:
        from moorage.cli.mcp.plans import PlanBook
        from moorage.cli.mcp.server import serve_stdio
    except ImportError as error:
        raise StartupError(
            f"`moorage mcp` needs a package that is not installed: {error.name or error}",
            next_step="pip install 'moorage[mcp]'",
        ) from error

    only = [name.strip() for given in tools or () for name in given.split(",")]

    async def serve(client: Client) -> None:
        await serve_stdio(client, PlanBook(gpu_hours), cli.clock, read_only=read_only, only=only)

    cli.run(serve)
