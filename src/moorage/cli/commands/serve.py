"""``moorage serve``: serves a model as an endpoint behind the OpenAI-compatible address."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import exit_codes, parse
from moorage.cli.app import app
from moorage.cli.completion import endpoint_names, project_names
from moorage.cli.context import Cli, Output, command, duration_option
from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.cli.output import print_facts, printable
from moorage.cli.progress import StageProgress
from moorage.cli.session_options import (
    AgentLabels,
    Agents,
    Arch,
    Env,
    EnvFile,
    Gpus,
    Group,
    Image,
    Labels,
    Priority,
    Reload,
    Resources,
    Runtime,
    Secrets,
    Timeout,
    placement_fields,
    user_labels,
)
from moorage.cli.summary import explain_failure
from moorage.cli.wait import until_ready
from moorage.common.model.errors import InvalidInput
from moorage.common.model.kernel import ENGINES
from moorage.sdk import ApiError, Unreachable

if TYPE_CHECKING:
    from moorage.common.model.spec import EndpointSpec
    from moorage.common.views.endpoints import EndpointView, ReplicaView
    from moorage.sdk import Client
    from moorage.sdk.installation.connection import Connection


RULES = ("waiting", "running", "kv_cache", "request_rate", "first_token_s")
Command = Annotated[
    list[str] | None, typer.Argument(help="For --engine custom, after --: program and arguments.")
]
EngineName = Annotated[
    str | None, typer.Option(help=f"{', '.join(ENGINES)}. Default: llamacpp for GGUF, else vllm.")
]
ServedName = Annotated[
    str | None,
    typer.Option(help="Name that clients send as `model`. Default: the model's base name."),
]
ScaleOn = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Scale to the target RULE=VALUE per replica: {', '.join(RULES)}; repeatable."
    ),
]
IdleTimeout = Annotated[
    float | None,
    duration_option("With --min 0: stop after this long without a request. Default: 10m."),
]
Adapters = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SOURCE",
        help=(
            "A LoRA adapter for vllm: a path on the node or a hub id, served as ENDPOINT:NAME; "
            "repeatable."
        ),
    ),
]
Fallbacks = Annotated[
    list[str] | None,
    typer.Option(
        "--fallback",
        metavar="MODEL",
        autocompletion=endpoint_names,
        help="Fallback for requests that it cannot serve: an endpoint, or "
        "MODEL,url=URL,secret=NAME at an outside provider; repeatable.",
    ),
]
MaxBody = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Largest body of a request, such as 20MiB."),
]
Replicas = Annotated[int | None, typer.Option(help="Number of replicas. Default: 1.")]
Least = Annotated[
    int | None, typer.Option("--min", help="Minimum number of replicas; 0: stop when idle.")
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is ready.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Install vLLM on a node if none has it, without asking.")
]
Share = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PROJECT",
        help="Another project that may use it; repeatable. `*`: all projects.",
        autocompletion=project_names,
    ),
]


@command(app)
def serve(
    cli: Cli,
    model: Annotated[
        str, typer.Argument(help="A GGUF file, a model's directory, or an id on a hub.")
    ],
    command: Command = None,
    engine: EngineName = None,
    name: ServedName = None,
    replicas: Replicas = None,
    least: Least = None,
    most: Annotated[int | None, typer.Option("--max", help="Maximum number of replicas.")] = None,
    scale_on: ScaleOn = None,
    idle_timeout: IdleTimeout = None,
    adapter: Adapters = None,
    fallback: Fallbacks = None,
    max_body: MaxBody = None,
    max_surge: Annotated[
        int | None, typer.Option(help="Rolling update: extra replicas above the number.")
    ] = None,
    resources: Resources = None,
    gpus: Gpus = None,
    arg: Annotated[
        list[str] | None, typer.Option(help="An argument for the engine; repeatable.")
    ] = None,
    env: Env = None,
    env_file: EnvFile = None,
    secret: Secrets = None,
    reload: Reload = None,
    probe: Annotated[
        str, typer.Option(help="For --engine custom: path that answers with 2xx when ready.")
    ] = "/",
    group: Group = None,
    image: Image = None,
    runtime: Runtime = None,
    arch: Arch = None,
    label: Labels = None,
    agent_label: AgentLabels = None,
    on: Agents = None,
    priority: Priority = None,
    timeout: Timeout = None,
    wait: Wait = True,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the endpoint when its start fails.")
    ] = False,
    share: Share = None,
    yes: Yes = False,
) -> None:
    """Serve a model behind one stable OpenAI-compatible address. Each replica gets the given
    resources.

    Without --gpus and --resources, it gets the resources that `moorage models show MODEL` shows.

    \b
    Examples:
      moorage serve ./tiny.gguf
      moorage serve Qwen/Qwen3-0.6B --gpus 1 --arg=--max-model-len --arg=4096
      moorage serve Qwen/Qwen3-0.6B-GGUF:Q8_0
      moorage serve ./tiny.gguf --min 0 --max 4 --scale-on waiting=2 --idle-timeout 5m
      moorage serve mine --engine custom --probe /health -- python server.py --port {port}
    """
    fields: dict[str, Any] = {
        "replicas": replicas,
        "autoscale": _autoscale(least, most, scale_on or [], idle_timeout),
        **_serving(max_surge, adapter or [], share, _routing(fallback or [], max_body)),
        "resources": parse.resources(resources or [], {"--gpus": gpus}),
        **{"resource_group": group, "args": arg, "env": parse.environment(env, env_file)},
        **{"secret_env": parse.secret_env(secret), "reload": parse.reload(reload)},
        "user_labels": user_labels(label),
        **placement_fields(
            arch, agent_label, agents=on, priority=priority, image=image, runtime=runtime
        ),
    }
    spec = _spec(model, name, engine=engine, command=command or [], probe=probe, fields=fields)
    _run(cli, spec, timeout_s=timeout, wait=wait and spec.replicas > 0, keep=keep, yes=yes)


def _run(
    cli: Cli, spec: EndpointSpec, timeout_s: float | None, wait: bool, *, keep: bool, yes: bool
) -> None:
    from moorage.common.views.endpoints import ReplicaView

    created: list[EndpointView] = []

    async def serve(client: Client) -> EndpointView | ReplicaView:
        chosen = spec
        if spec.engine == "vllm" and not spec.image:
            from moorage.cli.engine_setup import offer_engine

            chosen = await offer_engine(cli, client, spec, yes)

        created.append(await _create(cli, client, chosen))
        return (
            await _until_ready(cli, client, created=created[0], timeout_s=timeout_s, keep=keep)
            if wait
            else created[0]
        )

    try:
        with terminated_like_ctrl_c() as interrupted:
            outcome = cli.run(serve)
    except KeyboardInterrupt:
        if created:
            cli.note(f"moorage: {spec.name} keeps starting; `moorage stop {spec.name}` ends it")
        else:
            cli.note(f"moorage: interrupted; `moorage ps` shows whether {spec.name} was created")

        raise typer.Exit(interrupted.exit_code) from None

    if isinstance(outcome, ReplicaView):
        raise typer.Exit(exit_codes.of_failure(outcome.reason, outcome.detail))

    _print(cli, outcome)
    if wait and outcome.ready < outcome.replicas:
        cli.note(
            f"moorage: {outcome.ready} of {outcome.replicas} replicas of {outcome.name} are ready, "
            f"and there is no room for more now; `moorage why {outcome.name}` shows what the "
            "others wait for"
        )
        raise typer.Exit(exit_codes.FAILURE)


def _note_missing(cli: Cli, spec: EndpointSpec) -> None:
    from moorage.common.hub.selection import is_gguf_id

    model = spec.model or ""
    if spec.engine == "llamacpp" and not is_gguf_id(model) and not Path(model).exists():
        cli.note(
            f"note: {printable(str(spec.model))} is not on this machine; the agent's node needs it"
        )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _serving(
    max_surge: int | None, adapters: list[str], share: list[str] | None, routing: dict[str, Any]
) -> dict[str, Any]:
    named = parse.pairs(adapters, "--adapter", "sql=/models/sql-lora")
    return {
        "shared_with": share or None,
        "adapters": [{"name": name, "source": source} for name, source in named.items()] or None,
        "rollout": _given({"max_surge": max_surge}) or None,
        "routing": routing or None,
    }


def _routing(fallbacks: list[str], max_body: str | None) -> dict[str, Any]:
    limit = None if max_body is None else parse.size_limit(max_body, "--max-body")
    given = {
        "fallbacks": list(map(parse.fallback, fallbacks)) or None,
        "max_body_bytes": limit,
    }
    return _given(given)


def _autoscale(
    least: int | None, most: int | None, rules: list[str], idle_timeout_s: float | None
) -> dict[str, Any] | None:
    """The autoscaling options; None if the number of replicas is fixed."""
    given = _given({"min": least, "max": most, "idle_timeout_s": idle_timeout_s})
    rules_given = parse.pairs(rules, "--scale-on", "waiting=2") if rules else {}
    if unknown := rules_given.keys() - set(RULES):
        raise InvalidInput(
            f"--scale-on {sorted(unknown)[0]} is not a rule",
            next_step=f"rules are {', '.join(RULES)}",
        )

    if not given and not rules_given:
        return None

    least = given.setdefault("min", 1)
    given.setdefault("max", max(1, least))
    return given | rules_given


def _spec(
    model: str,
    name: str | None,
    engine: str | None,
    command: list[str],
    *,
    probe: str,
    fields: dict[str, Any],
) -> EndpointSpec:
    """The endpoint's spec. An engine, name or path that was not given is guessed."""
    engine = engine or ("custom" if command else parse.guess_engine(model))
    if engine == "custom":
        fields |= {"model": model, "command": command, "probe": {"path": probe}}
    else:
        fields |= {"model": parse.locate_model(model), "command": command or None}

    given = {field: value for field, value in fields.items() if value is not None}
    from moorage.common.model.spec import EndpointSpec
    from moorage.common.views.endpoints import NewEndpoint

    body = NewEndpoint if given.keys() & {"shared_with", "user_labels"} else EndpointSpec
    return body.model_validate({"name": name or parse.guess_name(model), "engine": engine, **given})


async def _create(cli: Cli, client: Client, spec: EndpointSpec) -> EndpointView:
    _note_missing(cli, spec)
    if "resources" not in spec.model_fields_set and spec.engine != "custom":
        from moorage.cli.model_sizing import fit_to_nodes

        spec = await fit_to_nodes(cli, client, spec)
    return await client.endpoints.create(spec)


async def _until_ready(
    cli: Cli, client: Client, created: EndpointView, timeout_s: float | None, *, keep: bool
) -> EndpointView | ReplicaView:
    from moorage.common.views.endpoints import ReplicaView

    with StageProgress(cli, created.name) as progress:
        outcome = await until_ready(
            client, created, clock=cli.clock, progress=progress, timeout_s=timeout_s
        )

    if isinstance(outcome, ReplicaView):
        await _report_failure(cli, client, name=created.name, failed=outcome, keep=keep)

    return outcome


async def _report_failure(
    cli: Cli, client: Client, name: str, failed: ReplicaView, *, keep: bool
) -> None:
    failure, step = explain_failure(failed.reason, failed.detail)
    if failed.log_tail:
        cli.err.print(
            f"last lines of its log:\n{printable(failed.log_tail).rstrip()}\n", soft_wrap=True
        )

    outcome = f"it is kept and retried; `moorage stop {name}` deletes it"
    if not keep:
        try:
            if (await client.endpoints.get(name)).ready:
                keep = True  # other replicas are serving
        except (ApiError, Unreachable):
            pass

    if not keep:
        try:
            await client.endpoints.delete(name)
            outcome = "the endpoint was deleted"
        except (ApiError, Unreachable) as error:
            outcome = f"it could not be deleted ({error}); `moorage stop {name}` tries again"

    line = "; ".join(part for part in (f"moorage: {name} failed: {failure}", step, outcome) if part)
    cli.note(printable(line, one_line=True))


def _ca_option(at: Connection) -> str:
    return f"--cacert {shlex.quote(at.ca_file)} " if at.ca_file else ""


def _print(cli: Cli, view: EndpointView) -> None:
    at = cli.connection
    if cli.json:
        cli.print_json({"endpoint": view, "openai_url": at.openai_url})
        return
    if cli.output is Output.NAME:
        print(view.name)
        return

    body = json.dumps({"model": view.name, "messages": [{"role": "user", "content": "Hello"}]})
    state = (
        str(view.status) if not view.ready else f"{view.ready} of {view.replicas} replicas ready"
    )
    print_facts(
        cli.out,
        [
            ("name", view.name),
            ("status", state),
            ("OpenAI URL", at.openai_url),
            (
                "try it",
                f"curl {_ca_option(at)}{at.openai_url}/chat/completions -H 'Content-Type: "
                "application/json' "
                f'-H "Authorization: Bearer {at.key_in_shell}" -d {shlex.quote(body)}',
            ),
            ("or", f"moorage chat {view.name} Hello"),
        ],
    )
