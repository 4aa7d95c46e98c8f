"""``moorage serve``: a model behind the OpenAI address, waited for with progress."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from moorage.cli import parse
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, verb
from moorage.cli.failures import FAILURE, INTERRUPTED
from moorage.cli.progress import Progress
from moorage.cli.render import print_facts, printable
from moorage.cli.story import why_failed
from moorage.cli.verbs.placement import Arch, Image, Labels, On, Priority, Runtime, where
from moorage.cli.waiting import until_ready
from moorage.common.model.kernel import ENGINES
from moorage.common.model.spec import EndpointSpec
from moorage.common.views.resources import EndpointView, ReplicaView
from moorage.sdk import ApiError, Client, Unreachable


@verb(app)
def serve(
    cli: Cli,
    model: Annotated[str, typer.Argument(help="A GGUF file, a model's directory, or a hub id.")],
    command: Annotated[
        list[str] | None, typer.Argument(help="For --engine custom, after --: program and arguments.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help=f"{', '.join(ENGINES)}. Else: *.gguf is llamacpp, all others vllm.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What clients send as `model`. Else: its base name.")
    ] = None,
    replicas: Annotated[int, typer.Option(help="How many copies.")] = 1,
    resources: Annotated[list[str] | None, typer.Option(help="Per replica, like cpu=2 or mem=4GiB.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="Per replica; short for cuda.device=N.")] = None,
    arg: Annotated[list[str] | None, typer.Option(help="An argument for the engine; repeat it.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the engine; repeat it.")] = None,
    probe: Annotated[str, typer.Option(help="For custom: path that answers 2xx when ready.")] = "/",
    group: Annotated[str | None, typer.Option(help="Resource group.")] = None,
    image: Image = None,
    runtime: Runtime = None,
    arch: Arch = None,
    label: Labels = None,
    on: On = None,
    priority: Priority = None,
    timeout: Annotated[float | None, typer.Option(help="Longest wait in seconds; then exit 124.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is ready.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the endpoint when it fails.")] = False,
) -> None:
    """Serve a model behind one stable OpenAI address.

    \b
    Examples:
      moorage serve ./tiny.gguf
      moorage serve Qwen/Qwen3-0.6B --gpus 1 --arg=--max-model-len --arg=4096
      moorage serve Qwen/Qwen3-0.6B --gpus 1 --runtime docker
      moorage serve mine --engine custom --probe /health -- python server.py --port {port}
    """
    asked: dict[str, Any] = {
        "replicas": replicas,
        "resources": parse.resources(resources or [], gpus),
        "resource_group": group,
        "args": arg,
        "env": parse.pairs(env, "--env", "HF_HOME=/models") if env else None,
        **where(arch, label, on, priority, image, runtime),
    }
    spec = _spec(model, name, engine, command or [], probe, asked)
    if spec.engine == "llamacpp" and not Path(spec.model or "").exists():
        cli.say(f"note: {printable(str(spec.model))} is not on this machine; the agent's node must have it")
    try:
        outcome = cli.run(lambda client: _serve(cli, client, spec, timeout, wait and replicas > 0, keep))
    except KeyboardInterrupt:
        cli.say(
            f"moorage: {spec.name} is left to start by itself; `moorage ps` shows it, "
            f"`moorage stop {spec.name}` ends it"
        )
        raise typer.Exit(INTERRUPTED) from None
    if isinstance(outcome, ReplicaView):
        raise typer.Exit(FAILURE)
    _print(cli, outcome)


def _spec(
    model: str, name: str | None, engine: str | None, command: list[str], probe: str, asked: dict[str, Any]
) -> EndpointSpec:
    """What was asked for, with engine, name and path worked out where they were left open."""
    engine = engine or ("custom" if command else parse.guess_engine(model))
    if engine == "custom":
        asked |= {"model": model, "command": command, "probe": {"path": probe}}
    else:
        asked |= {"model": parse.locate_model(model), "command": command or None}
    given = {field: value for field, value in asked.items() if value is not None}
    return EndpointSpec.model_validate({"name": name or parse.guess_name(model), "engine": engine, **given})


async def _serve(
    cli: Cli, client: Client, spec: EndpointSpec, timeout_s: float | None, wait: bool, keep: bool
) -> EndpointView | ReplicaView:
    made = await client.create_endpoint(spec)
    if not wait:
        return made
    with Progress(cli.err, spec.name) as progress:
        outcome = await until_ready(
            client, spec.name, clock=cli.clock, progress=progress, timeout_s=timeout_s
        )
    if isinstance(outcome, ReplicaView):
        await _tell_failure(cli, client, spec.name, outcome, keep)
    return outcome


async def _tell_failure(cli: Cli, client: Client, name: str, failed: ReplicaView, keep: bool) -> None:
    words, step = why_failed(failed.reason, failed.detail)
    if failed.log_tail:
        cli.err.print(
            Text(f"last lines of its log:\n{printable(failed.log_tail).rstrip()}\n"), soft_wrap=True
        )
    fate = f"it is kept and tried again; `moorage stop {name}` ends it"
    if not keep:
        try:
            await client.delete_endpoint(name)
            fate = "it was removed again"
        except (ApiError, Unreachable) as error:
            fate = f"it could not be removed ({error}); `moorage stop {name}`"
    line = "; ".join(part for part in (f"moorage: {name} failed: {words}", step, fate) if part)
    cli.say(printable(line, one_line=True))


def _print(cli: Cli, view: EndpointView) -> None:
    at = cli.connection
    if cli.json:
        cli.print_json({"endpoint": view, "openai_url": at.openai_url})
        return
    if cli.output is Output.NAME:
        print(view.name)
        return
    body = json.dumps({"model": view.name, "messages": [{"role": "user", "content": "Hello"}]})
    state = str(view.status) if not view.ready else f"{view.ready} of {view.replicas} replicas ready"
    print_facts(
        cli.out,
        [
            ("name", view.name),
            ("status", state),
            ("OpenAI URL", at.openai_url),
            (
                "try it",
                f"curl {at.openai_url}/chat/completions -H 'Content-Type: application/json' "
                f'-H "Authorization: Bearer {at.key_in_shell}" -d {shlex.quote(body)}',
            ),
            ("or", f"moorage chat {view.name} Hello"),
        ],
    )
