"""``moorage start``: starts an interactive session, which runs until it is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import exit_codes
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, command, duration_option
from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.cli.output import current_kernel, printable
from moorage.cli.progress import StageProgress
from moorage.cli.session_options import (
    AgentLabels,
    Agents,
    Arch,
    Checkpoint,
    ClusterMode,
    ClusterSize,
    Cpus,
    Env,
    EnvFile,
    Gpus,
    Group,
    Image,
    Labels,
    Memory,
    Name,
    Notify,
    OnKernelLoss,
    Parameters,
    Ports,
    Priority,
    Qos,
    Reload,
    Resources,
    Secrets,
    SessionFile,
    SessionRuntime,
    Strict,
    Template,
    TemplateStart,
    Timeout,
    Workspace,
    create_session,
    session_request,
)
from moorage.cli.summary import explain_failure, next_steps
from moorage.cli.wait import until_session
from moorage.common.model.errors import InvalidInput
from moorage.common.model.status import ATTENDED, BEFORE_RUNNING, Result, SessionType, Status

if TYPE_CHECKING:
    from moorage.common.model.spec import SessionSpec
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

Kind = Annotated[
    str,
    typer.Option(
        "--type", help="interactive, or system, which moves files on a node and has no devices."
    ),
]
Lifetime = Annotated[
    float | None, duration_option("Maximum lifetime; after that, the session is stopped.")
]
IdleTimeout = Annotated[
    float | None,
    duration_option(
        "Stop it after this long without traffic to its apps and without `moorage exec`."
    ),
]


@command(app)
def start(
    cli: Cli,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: program and arguments. Default: none, the session idles."),
    ] = None,
    name: Name = None,
    kind: Kind = "interactive",
    resources: Resources = None,
    gpus: Gpus = None,
    cpus: Cpus = None,
    memory: Memory = None,
    env: Env = None,
    env_file: EnvFile = None,
    secret: Secrets = None,
    port: Ports = None,
    reload: Reload = None,
    checkpoint: Checkpoint = None,
    group: Group = None,
    lifetime: Lifetime = None,
    idle_timeout: IdleTimeout = None,
    cluster: ClusterSize = None,
    cluster_mode: ClusterMode = None,
    on_kernel_loss: OnKernelLoss = None,
    image: Image = None,
    runtime: SessionRuntime = None,
    arch: Arch = None,
    label: Labels = None,
    notify: Notify = None,
    agent_label: AgentLabels = None,
    on: Agents = None,
    priority: Priority = None,
    qos: Qos = None,
    workspace: Workspace = None,
    strict: Strict = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it runs.")] = True,
    timeout: Timeout = None,
    template: Template = None,
    parameters: Parameters = None,
    file: SessionFile = None,
) -> None:
    """Start an interactive session, which runs until it is stopped.

    With --template, start a session of any type from the template.

    \b
    Examples:
      moorage start --name dev --gpus 1
      moorage start --image python:3.12 --lifetime 8h --idle-timeout 30m
      moorage start --template train --set epochs=3 --gpus 2
      moorage start --port web -- python3 -m http.server --bind 127.0.0.1 "{port:web}"
    """
    spec = session_request(_type(kind), locals(), _limits(lifetime, idle_timeout))
    _start(cli, spec, strict=strict, wait=wait, timeout=timeout)


def _start(
    cli: Cli, spec: SessionSpec | TemplateStart, *, strict: bool, wait: bool, timeout: float | None
) -> None:
    created: list[SessionView] = []

    async def work(client: Client) -> SessionView:
        created.append(await create_session(cli, client, spec, strict=strict))
        return await _until_running(cli, client, created[0], timeout) if wait else created[0]

    try:
        with terminated_like_ctrl_c() as interrupted:
            view = cli.run(work)
    except KeyboardInterrupt:
        _say_what_remains(cli, created)
        raise typer.Exit(interrupted.exit_code) from None

    _show(cli, view, wait)


def _say_what_remains(cli: Cli, created: list[SessionView]) -> None:
    if not created:
        cli.note("moorage: interrupted; `moorage ps` shows whether the session was created")
        return
    ref = created[0].name
    cli.note(f"moorage: {ref} keeps starting; `moorage ps` shows it, `moorage stop {ref}` ends it")


def _limits(lifetime: float | None, idle_timeout: float | None) -> dict[str, Any]:
    chosen = {} if idle_timeout is None else {"idle": {"traffic_s": idle_timeout}}
    return {"max_lifetime_s": lifetime, **chosen}


def _type(given: str) -> SessionType:
    if given not in ATTENDED:
        raise InvalidInput(
            f"--type {given!r} is not allowed here: use {' or '.join(ATTENDED)}",
            next_step="`moorage run` starts batch sessions, `moorage serve` models",
        )
    return SessionType(given)


def _show(cli: Cli, view: SessionView, wait: bool) -> None:
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)

    if wait and view.status is not Status.RUNNING and view.result is not Result.SUCCESS:
        _report_failure(cli, view)
        kernel = current_kernel(view)
        code = kernel.exit_code if kernel else None
        raise typer.Exit(exit_codes.of_failure(view.reason, view.detail, code))

    if cli.output is Output.TABLE:
        for action, step in next_steps(view):
            cli.note(f"{action + ':':<14}{step}")


async def _until_running(
    cli: Cli, client: Client, created: SessionView, timeout_s: float | None
) -> SessionView:
    with StageProgress(cli, created.name) as progress:
        return await until_session(
            client,
            created,
            # A batch session may have ended already: its result is known once it is terminal.
            lambda view: view.status not in {*BEFORE_RUNNING, Status.TERMINATING},
            clock=cli.clock,
            progress=progress,
            timeout_s=timeout_s,
        )


def _report_failure(cli: Cli, view: SessionView) -> None:
    failure, step = explain_failure(view.reason, view.detail)
    line = "; ".join(
        part for part in (f"moorage: {view.name} is not running: {failure}", step) if part
    )
    cli.err.print(printable(line, one_line=True), soft_wrap=True)
    kernel = current_kernel(view)
    if kernel is not None and kernel.log_tail:
        cli.err.print(printable(kernel.log_tail.rstrip()), soft_wrap=True)
