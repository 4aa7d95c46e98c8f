"""Options of the commands that create sessions and endpoints, and the session spec built from
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import parse
from moorage.cli.completion import agent_ids, group_names, names_of
from moorage.cli.context import Cli, duration_option
from moorage.common.model.errors import InvalidInput
from moorage.common.model.runtimes import IMAGE_RUNTIME
from moorage.common.model.service_ports import parse_port
from moorage.sdk import Unreachable

if TYPE_CHECKING:
    from moorage.common.model.spec import SessionSpec
    from moorage.common.model.status import SessionType
    from moorage.common.views.pending import PlanView
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

Name = Annotated[str | None, typer.Option(help="Name of the session. Default: a generated one.")]
Resources = Annotated[
    list[str] | None, typer.Option(help="SLOT=AMOUNT, like cpu=2 or mem=4GiB; repeatable.")
]
Gpus = Annotated[int | None, typer.Option(min=0, help="Short for cuda.device=N.")]
Cpus = Annotated[str | None, typer.Option(help="Short for --resources cpu=N.")]
Memory = Annotated[str | None, typer.Option(help="Short for --resources mem=AMOUNT, like 4GiB.")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", help="Environment variable NAME=VALUE; repeatable."),
]
SessionFile = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="YAML or TOML file with fields of the session, as in REST; other options override it.",
    ),
]
EnvFile = Annotated[
    list[str] | None,
    typer.Option("--env-file", help="File of NAME=VALUE lines; --env overrides it; repeatable."),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret",
        help="VARIABLE=SECRET: pass a stored secret as an environment variable; repeatable.",
    ),
]
Ports = Annotated[
    list[str] | None,
    typer.Option(
        "--port",
        help=(
            "A service port for `open` and `port-forward`: NAME[:PORT][/tcp][+path][+key]; "
            "repeatable."
        ),
    ),
]
Reload = Annotated[
    str | None,
    typer.Option(
        metavar="SIGNAL|[PORT:]PATH",
        help="How `moorage reload` reaches the program: HUP, or a POST to /PATH at a service port. "
        "+progress: the program acknowledges through its progress.",
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="SIGNAL[:SECONDS]",
        help="Signal, such as USR1, that the program gets before it is stopped, and the seconds it "
        "has to save its state. Default: 60.",
    ),
]
Group = Annotated[str | None, typer.Option(help="Resource group.", autocompletion=group_names)]
ClusterSize = Annotated[
    int | None,
    typer.Option(
        "--cluster", min=1, help="Number of kernels in the cluster: main1, sub1, sub2, ..."
    ),
]
ClusterMode = Annotated[
    str | None, typer.Option("--cluster-mode", help="single-node (the default) or multi-node.")
]
OnKernelLoss = Annotated[
    str | None,
    typer.Option(
        "--on-kernel-loss", help="end (the default), or degrade: continue without the lost kernel."
    ),
]
Workspace = Annotated[
    str | None,
    typer.Option(
        help="Give the session a directory on the node. keep: it outlives the session; drop: it is "
        "deleted with the session."
    ),
]
Reuse = Annotated[
    str | None,
    typer.Option(help="Reuse an equal session instead: success, live, both or never."),
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        metavar="EVENT,...[=TARGET]",
        help=(
            "Report begin, end, fail, time-limit or all to you by mail, or to TARGET: a "
            "subscription, an address or a URL."
        ),
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        help="NAME or NAME@VERSION of a template; other options override it.",
        autocompletion=names_of("templates"),
    ),
]
Parameters = Annotated[
    list[str] | None, typer.Option("--set", help="PARAMETER=VALUE of the template; repeatable.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Run it even if an equal session could be reused.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse a session that no agent could ever run.")
]

Timeout = Annotated[float | None, duration_option("Longest wait; then exit with 124.")]

Arch = Annotated[str | None, typer.Option(help="Only agents of this architecture, like x86_64.")]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", help="Label KEY=VALUE to find it with `moorage ps -l KEY=VALUE`; repeatable."
    ),
]
AgentLabels = Annotated[
    list[str] | None,
    typer.Option("--agent-label", help="Only agents with this label, like room=north; repeatable."),
]
Agents = Annotated[
    list[str] | None,
    typer.Option("--on", help="Only this agent; repeatable.", autocompletion=agent_ids),
]
Image = Annotated[
    str | None, typer.Option(help="Run in a container of this image on a node with Docker.")
]
Runtime = Annotated[
    str | None,
    typer.Option(
        help=(
            "process, or docker: in a container of --image. Default for vLLM: the node's own image."
        )
    ),
]
SessionRuntime = Annotated[
    str | None,
    typer.Option("--runtime", help="process, docker, celery or custom:NAME. Default: process."),
]
Priority = Annotated[
    int | None, typer.Option(min=0, max=100, help="Priority; higher starts first. Default: 10.")
]

Qos = Annotated[
    str | None,
    typer.Option(
        "--qos",
        help="Quality of service: its priority, limits and price apply.",
        autocompletion=names_of("qos"),
    ),
]


def user_labels(given: list[str] | None) -> dict[str, str] | None:
    """Labels from ``--label``; None if the option was not given."""
    return parse.pairs(given, "--label", "team=vision") if given else None


def placement_fields(
    arch: str | None,
    labels: list[str] | None,
    agents: list[str] | None,
    priority: int | None,
    *,
    image: str | None,
    runtime: str | None = None,
) -> dict[str, Any]:
    """Fields of a spec that restrict where it may run, with None for options that were not
    given."""
    return {
        "arch": arch,
        "labels": parse.pairs(labels, "--agent-label", "room=north") if labels else None,
        "agents": agents or None,
        "priority": priority,
        "image": image,
        "runtime": runtime or (IMAGE_RUNTIME if image else None),
    }


def session_spec(
    kind: SessionType, given: Mapping[str, Any], own: Mapping[str, Any]
) -> SessionSpec:
    """The spec built from the shared options in ``given``, by parameter name, and the command's
    ``own`` fields.

    None means that an option was not given. Raises ``InvalidInput`` or ``ValidationError``.
    """
    from moorage.common.model.spec import SessionSpec

    fixed = {"type": kind, "engine": "custom", "command": given["command"] or []}
    if given.get("file") is None:
        return SessionSpec.model_validate(fixed | session_fields(given, own))

    from moorage.cli import session_file

    fields = session_file.read(given["file"])
    if (named := fields.get("type", kind)) != kind:
        raise InvalidInput(
            f"--file {given['file']!r} holds a session of type {named}; this command needs {kind}",
            next_step="`moorage run` is for batch sessions, `moorage start` for interactive ones",
        )

    command = {"command": given["command"]} if given["command"] else {}
    options = session_fields(given, own, {}) | command
    if isinstance(slots := fields.get("resources"), dict):
        fields["resources"] = parse.BASE_RESOURCES | slots
    elif "resources" in options:
        options["resources"] = parse.BASE_RESOURCES | options["resources"]
    return SessionSpec.model_validate(fixed | session_file.merged(fields, options))


def session_fields(
    given: Mapping[str, Any],
    own: Mapping[str, Any],
    base_resources: Mapping[str, str] = parse.BASE_RESOURCES,
) -> dict[str, Any]:
    """The fields of ``session_spec`` that were given, without type and command."""
    fields: dict[str, Any] = {
        "name": given["name"],
        "resources": parse.resources(
            given["resources"] or [],
            {
                "--gpus": given["gpus"],
                "--cpus": given["cpus"],
                "--memory": given["memory"],
            },
            base_resources,
        ),
        "env": parse.environment(given["env"], given.get("env_file")),
        "secret_env": parse.secret_env(given["secret"]),
        "resource_group": given["group"],
        "cluster": _cluster(given),
        "workspace": given["workspace"],
        "ports": [_port(text) for text in given["port"]] if given["port"] else None,
        "reload": parse.reload(given.get("reload")),
        "checkpoint": parse.checkpoint(given.get("checkpoint")),
        "notify": parse.notify(given.get("notify")),
        "user_labels": user_labels(given["label"]),
        "qos": given["qos"],
        **placement_fields(
            given["arch"],
            given["agent_label"],
            agents=given["on"],
            priority=given["priority"],
            image=given["image"],
            runtime=given["runtime"],
        ),
        **own,
    }
    return {field: value for field, value in fields.items() if value is not None}


def _cluster(given: Mapping[str, Any]) -> dict[str, Any] | None:
    fields = {
        "size": given["cluster"],
        "mode": given["cluster_mode"],
        "on_kernel_loss": given["on_kernel_loss"],
    }
    named = {field: value for field, value in fields.items() if value is not None}
    if named and "size" not in named:
        raise InvalidInput(
            "--cluster-mode and --on-kernel-loss apply only to clusters",
            next_step="also give the number of kernels, like --cluster 4",
        )

    return named or None


def _port(text: str) -> dict[str, Any]:
    port = parse_port(text)
    traits = {"base_path": port.base_path, "guarded": port.guarded}
    return {"name": port.name, "port": port.port or None, "protocol": port.protocol, **traits}


@dataclass(frozen=True, slots=True)
class TemplateStart:
    """Starts a session from a template. ``ref``: NAME or NAME@VERSION. ``given``: NAME=VALUE texts.
    ``overrides``: fields of the specification."""

    ref: str
    given: Mapping[str, str]
    overrides: Mapping[str, Any]

    async def create(self, client: Client, key: str, strict: bool, force: bool) -> SessionView:
        """Create the session. Raises ``InvalidInput`` for a parameter that the template lacks or
        that has the wrong type."""
        name, version, values = await self.read(client)
        return await client.templates.start(
            name,
            values,
            self.overrides,
            version=version,
            idempotency_key=key,
            strict=strict,
            force=force,
        )

    async def plan(self, client: Client) -> PlanView:
        """Plan the session. Raises the same errors as ``create``."""
        name, version, values = await self.read(client)
        return await client.templates.plan(name, values, self.overrides, version=version)

    async def read(self, client: Client) -> tuple[str, int | None, dict[str, Any]]:
        """The template's name and version, and the values of its parameters."""
        try:
            from moorage.common.model.templates import split_version

            name, version = split_version(self.ref)
        except ValueError as error:
            raise InvalidInput(f"--template {error}") from None

        declared = {}
        if self.given:
            view = await client.templates.get(name, version)
            declared = view.template.parameters
            version = view.version

        values = {
            key: parse.parameter(key, text, declared.get(key)) for key, text in self.given.items()
        }
        return name, version, values


def session_request(
    kind: SessionType, given: Mapping[str, Any], own: Mapping[str, Any]
) -> SessionSpec | TemplateStart:
    """The result of ``session_spec``, or the template from ``--template`` with the other options as
    overrides."""
    if given["template"] is None:
        if given["parameters"]:
            raise InvalidInput(
                "--set applies only to templates", next_step="also give --template NAME"
            )
        return session_spec(kind, given, own)

    if given.get("file") is not None:
        raise InvalidInput("--file and --template exclude each other", next_step="leave out one")

    values = parse.pairs(given["parameters"], "--set", "epochs=3") if given["parameters"] else {}
    command = {"command": given["command"]} if given["command"] else {}
    return TemplateStart(given["template"], values, session_fields(given, own, {}) | command)


async def plan_session(client: Client, spec: SessionSpec | TemplateStart) -> PlanView:
    """Where the session would start now. Creates nothing."""
    from moorage.common.model.spec import SessionSpec

    return await (
        client.sessions.plan(spec) if isinstance(spec, SessionSpec) else spec.plan(client)
    )


async def _create(
    client: Client, spec: SessionSpec | TemplateStart, key: str, strict: bool, *, force: bool
) -> SessionView:
    from moorage.common.model.spec import SessionSpec

    if isinstance(spec, SessionSpec):
        return await client.sessions.create(spec, idempotency_key=key, strict=strict, force=force)
    return await spec.create(client, key, strict, force)


async def create_session(
    cli: Cli,
    client: Client,
    spec: SessionSpec | TemplateStart,
    *,
    strict: bool,
    force: bool = False,
) -> SessionView:
    """Create the session. Retries once if no answer arrives; the idempotency key ensures a single
    session."""
    key = cli.clock.new_id()
    try:
        return await _create(client, spec, key=key, strict=strict, force=force)
    except Unreachable:
        return await _create(client, spec, key=key, strict=strict, force=force)
