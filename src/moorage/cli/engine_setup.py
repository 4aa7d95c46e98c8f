"""Setup of vLLM when a model needs it and no node has it. Once the user has agreed, a session
installs vLLM on a node, or vLLM runs as a container."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.markup import escape

from moorage.cli import terminal
from moorage.cli.context import Cli
from moorage.cli.progress import StageProgress
from moorage.cli.summary import has_ended
from moorage.cli.wait import timeout_of, until_session
from moorage.common.catalog import sizing
from moorage.common.model.errors import StartupError
from moorage.common.model.runtimes import IMAGE_RUNTIME, traits_of
from moorage.common.model.spec import SessionSpec
from moorage.sdk import ApiError

if TYPE_CHECKING:
    from rich.console import Console

    from moorage.common.model.spec import EndpointSpec
    from moorage.common.views.resources import AgentView, SessionView
    from moorage.sdk import Client

_ENGINE = "vllm"
_LONGEST_S = 2 * 3600.0
# The agent looks for engines every 5 seconds.
_SEEN_S = 120.0


class Nodes(NamedTuple):
    """A node on which the engine can be installed, and a node that can run its container, if there
    are any."""

    install: AgentView | None = None
    container: AgentView | None = None


def choose_nodes(spec: EndpointSpec, agents: Sequence[AgentView]) -> Nodes:
    """The nodes to offer: for each way to run vLLM, the node with the most GPUs, or with the most
    memory among equals. Both are None if nothing needs to be set up or no node can run ``spec``."""
    if (
        spec.engine != _ENGINE
        or traits_of(spec.runtime).images
        or traits_of(spec.runtime).site_jobs
    ):
        return Nodes()

    able = sizing.eligible(spec, agents, any_engine=True)
    if any(_ENGINE in agent.engines for agent in able):
        return Nodes()

    return Nodes(_largest(able), _largest(sizing.eligible(in_container(spec), agents)))


def in_container(spec: EndpointSpec) -> EndpointSpec:
    return spec.model_copy(update={"runtime": IMAGE_RUNTIME})


def _largest(agents: Sequence[AgentView]) -> AgentView | None:
    nodes = {node.name: node for node in sizing.nodes_of(agents)}
    return max(
        agents, key=lambda agent: (_gpus(agent), nodes[agent.id].mem, agent.id), default=None
    )


def _gpus(agent: AgentView) -> int:
    return sum(offer.healthy for offer in agent.offers if offer.slot == "cuda.device")


def installation(agent: AgentView, runtime: str) -> SessionSpec:
    """The session that installs the engine. A node has only one such session at a time, because the
    names of live sessions are unique."""
    build = "cuda" if _gpus(agent) else "cpu"
    command = f'exec "$MOORAGE_PYTHON" -m moorage agent install-engine {_ENGINE} --build {build}'
    fields = {
        "name": f"install-{_ENGINE}-{agent.id}"[:63].rstrip("-"),
        "type": "batch",
        "runtime": runtime,
    }

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


async def offer_engine(cli: Cli, client: Client, spec: EndpointSpec, yes: bool) -> EndpointSpec:
    """Return the spec to serve once a node can run it. If no suitable node has vLLM and the user
    agrees, vLLM is installed on one, or ``spec`` is changed to its container. Raises
    ``StartupError`` if an installation fails."""
    if spec.engine != _ENGINE:
        return spec

    try:
        nodes = choose_nodes(spec, await client.agents.list())
    except ApiError:
        return spec  # this key may not read the agents

    if nodes == Nodes():
        return spec

    answer = _Answer.INSTALL if yes and nodes.install else _Answer.NO
    if not yes and terminal.is_terminal():
        answer = _ask(nodes, cli.err)
    if answer is _Answer.CONTAINER:
        return in_container(spec)

    if answer is _Answer.INSTALL and nodes.install:
        await _install(cli, client, nodes.install, spec.runtime)
    else:
        cli.note(
            f"note: no node of resource group {spec.groups[0]} has vLLM; {'; '.join(_ways(nodes))}"
        )

    return spec


class _Answer(StrEnum):
    INSTALL = "install"
    CONTAINER = "container"
    NO = "no"


def _ways(nodes: Nodes) -> list[str]:
    ways = []
    if nodes.install:
        ways.append(
            f"--yes installs it on {nodes.install.id} in a separate environment, "
            f"as `moorage agent install-engine {_ENGINE}` does there"
        )

    if nodes.container:
        ways.append(
            f"--runtime {IMAGE_RUNTIME} runs its container, on {nodes.container.id} for example"
        )

    return ways


def _ask(nodes: Nodes, err: Console) -> _Answer:
    # At the first Ctrl-C, asyncio's handler would only cancel this task, which is blocked on input.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _answer(nodes, err)
    finally:
        signal.signal(signal.SIGINT, before)


def _answer(nodes: Nodes, err: Console) -> _Answer:
    if not (node := nodes.install):
        container = nodes.container
        assert container is not None
        agreed = typer.confirm(
            f"No node has vLLM. Run its container on {container.id}?", default=True, err=True
        )
        return _Answer.CONTAINER if agreed else _Answer.NO

    size = "16 GiB during installation" if _gpus(node) else "5 GiB during installation, CPU only"
    question = f"No node has vLLM. Install it on {node.id} ({size})"
    if not nodes.container:
        agreed = typer.confirm(f"{question}?", default=True, err=True)
        return _Answer.INSTALL if agreed else _Answer.NO

    from rich.prompt import Prompt

    question += f", or run its container on {nodes.container.id}?"
    try:
        return _Answer(
            Prompt.ask(
                escape(question), choices=list(_Answer), default=_Answer.INSTALL, console=err
            )
        )
    except (EOFError, KeyboardInterrupt):
        raise typer.Abort from None


async def _install(cli: Cli, client: Client, node: AgentView, runtime: str) -> None:
    session = await _begin(client, installation(node, runtime))
    with StageProgress(cli, session.name) as progress:
        ended = await until_session(
            client, session, has_ended, clock=cli.clock, progress=progress, timeout_s=_LONGEST_S
        )

    if ended.result != "SUCCESS":
        raise StartupError(
            f"vLLM was not installed on {node.id}: {await _last_line(client, ended)}",
            next_step=(
                f"`moorage logs {ended.name}` shows more; use --image or a node with vLLM instead"
            ),
        )

    async def has_engine() -> bool:
        return any(
            _ENGINE in agent.engines for agent in await client.agents.list() if agent.id == node.id
        )

    with timeout_of(
        _SEEN_S, f"that the agent of {node.id} finds vLLM", "`moorage agents` shows its engines"
    ):
        from moorage.sdk.waiting import first

        await first(client.events.states(has_engine, timeout_s=_SEEN_S, clock=cli.clock), bool)


async def _begin(client: Client, spec: SessionSpec) -> SessionView:
    try:
        return await client.sessions.create(spec)
    except ApiError as error:
        if error.status != 409:
            raise
        return await client.sessions.get(str(spec.name))  # another user has already started it


async def _last_line(client: Client, session: SessionView) -> str:
    log = b"".join([piece async for piece in client.sessions.logs(session.id, tail=20)])
    lines = log.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("moorage: ") if lines else str(session.reason or session.status)
