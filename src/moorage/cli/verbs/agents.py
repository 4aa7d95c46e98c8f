"""``moorage agents``: what there is on the nodes, and which of them get no new work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated, TypeVar

import typer
from typer.core import TyperGroup

from moorage.cli import parse, render
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, verb, with_shared_options
from moorage.cli.verbs import details
from moorage.common.model.errors import InvalidInput
from moorage.common.views.resources import AgentView, Cordon

A = TypeVar("A")
B = TypeVar("B")
_SHOW = "show"


class _AgentOrVerb(TyperGroup):
    """``moorage agents node-7`` shows that one: what is no verb is an agent."""

    def resolve_command(self, ctx, args):  # type: ignore[no-untyped-def]
        known = bool(args) and args[0] in self.commands
        return super().resolve_command(ctx, args if known else [_SHOW, *args])


agents = typer.Typer(invoke_without_command=True, cls=_AgentOrVerb)
app.add_typer(agents, name="agents")
Node = Annotated[str, typer.Argument(metavar="NODE", help="An agent, as `moorage agents` lists it.")]


@verb(agents, _SHOW, hidden=True)
def show(cli: Cli, agent_id: Node) -> None:
    """Show one agent in full."""
    one, used = cli.run(lambda c: _both(c.get_agent(agent_id), c.agent_stats(agent_id)))
    if cli.json:
        cli.print_json(one)
    else:
        details.print_agent(cli.out, one, used, cli.clock.now())


@verb(agents, "list", hidden=True)
def list_agents(cli: Cli) -> None:
    """List agents."""
    found = cli.run(lambda client: client.list_agents())
    now = cli.clock.now()
    if cli.json:
        cli.print_json({"agents": found})
    elif cli.output is Output.NAME:
        for view in found:
            print(view.id)
    elif not found:
        cli.say("no agent has joined; `moorage agent` starts one")
    else:
        columns = render.AGENT_COLUMNS + (render.AGENT_WIDE if cli.wide else ())
        render.print_table(cli.out, columns, [render.agent_row(a, now, wide=cli.wide) for a in found])


def _agents(cli: Cli) -> None:
    """List agents: what each offers and how much of it is in use. With a name: one of them in full.

    \b
    Examples:
      moorage agents
      moorage agents node-7
      moorage agents drain node-7 --deadline 2h
    """
    if cli.subcommand is None:
        list_agents(cli)


agents.callback()(with_shared_options(_agents))


@verb(agents)
def cordon(cli: Cli, agent_id: Node) -> None:
    """Nothing new goes to this agent; what runs there goes on. For administrators.

    \b
    Examples:
      moorage agents cordon node-7
    """
    _print(cli, cli.run(lambda client: client.cordon_agent(agent_id)))


@verb(agents)
def uncordon(cli: Cli, agent_id: Node) -> None:
    """This agent gets new work again; ends a drain, too. For administrators."""
    _print(cli, cli.run(lambda client: client.uncordon_agent(agent_id)))


@verb(agents)
def drain(
    cli: Cli,
    agent_id: Node,
    deadline: Annotated[
        str | None,
        typer.Option(help="What is left after so long (30m, 2h), or then, is stopped or moved."),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Without waiting for anything to end.")] = False,
) -> None:
    """Empty an agent: nothing new, and replicas go once others are ready in their place. For administrators.

    Other sessions may end by themselves; with --deadline, what is left then is stopped, or, if it is a batch
    session with `retries`, put back into the queue. `moorage agents` shows how many kernels are left.

    \b
    Examples:
      moorage agents drain node-7
      moorage agents drain node-7 --deadline 2h
      moorage agents drain node-7 --stop
    """
    if stop and deadline is not None:
        raise InvalidInput("--stop and --deadline contradict each other", next_step="give one of them")
    after_s = 0.0 if stop else None
    if deadline is not None:
        now = cli.clock.now()
        after_s = max(0.0, (parse.moment(deadline, now) - now).total_seconds())
    asked = Cordon(drain=True, stop_after_s=after_s)
    _print(cli, cli.run(lambda client: client.cordon_agent(agent_id, asked)))


@verb(agents)
def history(cli: Cli, agent_id: Node) -> None:
    """What was done to an agent, and by whom. For administrators."""
    found = cli.run(lambda client: client.agent_history(agent_id))
    if cli.json:
        cli.print_json({"history": found})
    else:
        rows = [(f"{e.at:%Y-%m-%d %H:%M:%S}", e.event, e.actor, e.detail) for e in found]
        render.print_table(cli.out, ("AT", "EVENT", "BY", "DETAIL"), rows)


def _print(cli: Cli, view: AgentView) -> None:
    if cli.json:
        cli.print_json(view)
        return
    left = f"; kernels there: {view.kernels}" if view.cordon == "drain" else ""
    cli.say(f"{view.id}: {render.agent_status(view)}{left}")
    print(view.id)


async def _both(one: Awaitable[A], other: Awaitable[B]) -> tuple[A, B]:
    return await asyncio.gather(one, other)
