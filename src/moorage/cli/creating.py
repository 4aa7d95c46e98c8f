"""What all verbs that create a session share: their options, the spec made of these, and the creation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from moorage.cli import parse
from moorage.cli.context import Cli
from moorage.cli.render import printable
from moorage.cli.verbs.placement import where
from moorage.common.model.errors import InvalidInput
from moorage.common.model.service_ports import parse_port
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType
from moorage.common.views.resources import SessionView
from moorage.sdk import Client, Unreachable

Name = Annotated[str | None, typer.Option(help="Name of the session; else one is made up.")]
Resources = Annotated[list[str] | None, typer.Option(help="Like cpu=2 or mem=4GiB; repeat it.")]
Gpus = Annotated[int | None, typer.Option(min=0, help="Short for cuda.device=N.")]
Env = Annotated[list[str] | None, typer.Option(help="NAME=VALUE; repeat it.")]
Ports = Annotated[
    list[str] | None,
    typer.Option(
        "--port",
        help="A service port for `open` and `port-forward`: NAME[:PORT][/tcp][+path][+key]; repeat it.",
    ),
]
Group = Annotated[str | None, typer.Option(help="Resource group.")]
Size = Annotated[
    int | None,
    typer.Option("--cluster", min=1, help="So many kernels that know each other: main1, sub1, ..."),
]
Mode = Annotated[
    str | None, typer.Option("--cluster-mode", help="single-node (as if not given) or multi-node.")
]
OnLoss = Annotated[
    str | None, typer.Option("--on-kernel-loss", help="end (as if not given), or degrade: go on without it.")
]
Workspace = Annotated[
    str | None,
    typer.Option(help="keep: a directory on its node that stays; drop: one that goes with it."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse what no agent could ever hold.")]


def _cluster(given: Mapping[str, Any]) -> dict[str, Any] | None:
    asked = {
        "size": given["cluster"],
        "mode": given["cluster_mode"],
        "on_kernel_loss": given["on_kernel_loss"],
    }
    named = {field: value for field, value in asked.items() if value is not None}
    if named and "size" not in named:
        raise InvalidInput(
            "--cluster-mode and --on-kernel-loss are about clusters",
            next_step="say also how many kernels it has, like --cluster 4",
        )
    return named or None


def session_spec(kind: SessionType, given: Mapping[str, Any], own: Mapping[str, Any]) -> SessionSpec:
    """What was ``given`` as the shared options, by the names of the parameters, with the ``own`` fields of a
    verb; None: not given. Raises ``InvalidInput`` or ``ValidationError``."""
    asked: dict[str, Any] = {
        "name": given["name"],
        "resources": parse.resources(given["resources"] or [], given["gpus"]),
        "env": parse.pairs(given["env"], "--env", "SEED=1") if given["env"] else None,
        "resource_group": given["group"],
        "cluster": _cluster(given),
        "workspace": given["workspace"],
        "ports": [_port(text) for text in given["port"]] if given["port"] else None,
        **where(given["arch"], given["label"], given["on"], given["priority"], given["image"]),
        **own,
    }
    named = {field: value for field, value in asked.items() if value is not None}
    fixed = {"type": kind, "engine": "custom", "command": given["command"] or []}
    return SessionSpec.model_validate(fixed | named)


def _port(text: str) -> dict[str, Any]:
    port = parse_port(text)
    traits = {"base_path": port.base_path, "guarded": port.guarded}
    return {"name": port.name, "port": port.port or None, "protocol": port.protocol, **traits}


async def create(cli: Cli, client: Client, spec: SessionSpec, *, strict: bool) -> SessionView:
    """Make it, and say what its asker should know. Once more when no answer came: whether the first was made
    or not, the key makes it one session."""
    key = cli.clock.new_id()
    try:
        made = await client.create_session(spec, idempotency_key=key, strict=strict)
    except Unreachable:
        made = await client.create_session(spec, idempotency_key=key, strict=strict)
    for warning in made.warnings:
        cli.say(printable(f"moorage: warning: {warning}", one_line=True))
    return made
