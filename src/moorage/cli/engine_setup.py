"""vLLM for a node that has none, when a model is served: asked once, installed by a session on that node."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from moorage.cli import model_fitting, terminal
from moorage.cli.context import Cli
from moorage.cli.progress import Progress
from moorage.cli.summary import has_ended
from moorage.cli.wait import timeout_of, until_session
from moorage.common.model.errors import StartupError
from moorage.common.model.runtimes import traits_of
from moorage.common.model.spec import SessionSpec
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from moorage.common.model.spec import EndpointSpec
    from moorage.common.views.resources import AgentView, SessionView
    from moorage.sdk import Client

_ENGINE = "vllm"
_LONGEST_S = 2 * 3600.0
# The agent looks for engines every 5 seconds.
_SEEN_S = 120.0


def choose_node(spec: EndpointSpec, agents: Sequence[AgentView]) -> AgentView | None:
    """The node that gets the engine: of those that could run it with the engine the one with most GPUs, then
    most memory. None: it is not needed, or no node could."""
    if spec.engine != _ENGINE or traits_of(spec.runtime).images or traits_of(spec.runtime).site_jobs:
        return None
    able = model_fitting.eligible(spec, agents, any_engine=True)
    if any(_ENGINE in agent.engines for agent in able):
        return None
    nodes = {node.name: node for node in model_fitting.nodes_of(able)}
    return max(able, key=lambda one: (_gpus(one), nodes[one.id].mem, one.id), default=None)


def _gpus(agent: AgentView) -> int:
    return sum(offer.healthy for offer in agent.offers if offer.slot == "cuda.device")


def installation(agent: AgentView, runtime: str) -> SessionSpec:
    """The session that installs it: one at a time for a node, since live names are unique."""
    build = "cuda" if _gpus(agent) else "cpu"
    command = f'exec "$MOORAGE_PYTHON" -m moorage agent install-engine {_ENGINE} --build {build}'
    fields = {"name": f"install-{_ENGINE}-{agent.id}"[:63].rstrip("-"), "type": "batch", "runtime": runtime}
    return SessionSpec.model_validate(
        fields
        | {
            "command": ["sh", "-c", command],
            "agents": [agent.id],
            "resource_group": agent.resource_group,
            "resources": {"cpu": "0.1", "mem": "512MiB"},
            "timeout_s": _LONGEST_S,
        }
    )


async def offer_engine(cli: Cli, client: Client, spec: EndpointSpec, yes: bool) -> None:
    """Install vLLM on a node, if no node that could run ``spec`` has it and the user agrees. Raises
    ``StartupError`` if that fails."""
    if spec.engine != _ENGINE:
        return
    try:
        node = choose_node(spec, await client.list_agents())
    except ApiError:
        return  # not for this key
    if node is None:
        return
    size = "16 GiB while it is made" if _gpus(node) else "5 GiB while it is made, for processors"
    if not yes and not (terminal.is_terminal() and _ask(node, size)):
        cli.note(
            f"note: no node of resource group {node.resource_group} has vLLM; --yes installs it on {node.id} "
            f"in an environment of its own, as `moorage agent install-engine {_ENGINE}` does there"
        )
        return
    await _install(cli, client, node, spec.runtime)


def _ask(node: AgentView, size: str) -> bool:
    # At the first Ctrl-C, asyncio's handler would only cancel this task, which waits for input.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(f"No node has vLLM. Install it on {node.id} ({size})?", default=True, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


async def _install(cli: Cli, client: Client, node: AgentView, runtime: str) -> None:
    session = await _begin(client, installation(node, runtime))
    with Progress(cli.err, session.name) as progress:
        ended = await until_session(
            client, session, has_ended, clock=cli.clock, progress=progress, timeout_s=_LONGEST_S
        )
    if ended.result != "SUCCESS":
        raise StartupError(
            f"vLLM was not installed on {node.id}: {await _last_line(client, ended)}",
            next_step=f"`moorage logs {ended.name}` shows more; --image or a node with vLLM does without",
        )

    async def has_engine() -> bool:
        return any(_ENGINE in one.engines for one in await client.list_agents() if one.id == node.id)

    with timeout_of(_SEEN_S, f"that the agent of {node.id} finds vLLM", "`moorage agents` shows its engines"):
        from moorage.sdk.waiting import first

        await first(client.states(has_engine, timeout_s=_SEEN_S, clock=cli.clock), bool)


async def _begin(client: Client, spec: SessionSpec) -> SessionView:
    try:
        return await client.create_session(spec)
    except ApiError as error:
        if error.status != 409:
            raise
        return await client.get_session(str(spec.name))  # somebody else has begun it


async def _last_line(client: Client, session: SessionView) -> str:
    log = b"".join([piece async for piece in client.logs(session.id, tail=20)])
    lines = log.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("moorage: ") if lines else str(session.reason or session.status)
