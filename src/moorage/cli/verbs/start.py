"""``moorage start``: an interactive session, which runs until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from moorage.cli import creating
from moorage.cli.app import app
from moorage.cli.context import Cli, Output, verb
from moorage.cli.creating import (
    Env,
    Gpus,
    Group,
    Mode,
    Name,
    OnLoss,
    Ports,
    Resources,
    Size,
    Strict,
    Workspace,
)
from moorage.cli.failures import FAILURE, INTERRUPTED
from moorage.cli.progress import Progress
from moorage.cli.render import current_kernel, printable
from moorage.cli.story import next_steps, why_failed
from moorage.cli.verbs.placement import Arch, Image, Labels, On, Priority
from moorage.cli.waiting import until_session
from moorage.common.model.status import STARTING, SessionType, Status
from moorage.common.views.resources import SessionView
from moorage.sdk import Client

_NOT_YET = frozenset({Status.PENDING, *STARTING})


@verb(app)
def start(
    cli: Cli,
    command: Annotated[
        list[str] | None, typer.Argument(help="After --: program and arguments; none: it only waits for you.")
    ] = None,
    name: Name = None,
    resources: Resources = None,
    gpus: Gpus = None,
    env: Env = None,
    port: Ports = None,
    group: Group = None,
    lifetime: Annotated[
        float | None, typer.Option(help="Longest life in seconds; then it is stopped.")
    ] = None,
    cluster: Size = None,
    cluster_mode: Mode = None,
    on_kernel_loss: OnLoss = None,
    image: Image = None,
    arch: Arch = None,
    label: Labels = None,
    on: On = None,
    priority: Priority = None,
    workspace: Workspace = None,
    strict: Strict = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it runs.")] = True,
    timeout: Annotated[float | None, typer.Option(help="Longest wait in seconds; then exit 124.")] = None,
) -> None:
    """Start a session that runs until it is stopped, to work in it.

    \b
    Examples:
      moorage start --name dev --gpus 1
      moorage start --image python:3.12 --lifetime 28800
      moorage start --port web -- python3 -m http.server --bind 127.0.0.1 "{port:web}"
    """
    spec = creating.session_spec(SessionType.INTERACTIVE, locals(), {"max_lifetime_s": lifetime})
    made: list[SessionView] = []

    async def work(client: Client) -> SessionView:
        made.append(await creating.create(cli, client, spec, strict=strict))
        return await _until_it_runs(cli, client, made[0], timeout) if wait else made[0]

    try:
        view = cli.run(work)
    except KeyboardInterrupt:
        ref = made[0].name if made else "it"
        cli.say(f"moorage: {ref} starts by itself; `moorage ps` shows it, `moorage stop {ref}` ends it")
        raise typer.Exit(INTERRUPTED) from None
    if cli.json:
        cli.print_json(view)
    else:
        print(view.name)
    if wait and view.status is not Status.RUNNING:
        _complain(cli, view)
        raise typer.Exit(FAILURE)
    if cli.output is Output.TABLE:
        for words, step in next_steps(view):
            cli.say(f"{words + ':':<14}{step}")


async def _until_it_runs(cli: Cli, client: Client, made: SessionView, timeout_s: float | None) -> SessionView:
    with Progress(cli.err, made.name) as progress:
        return await until_session(
            client,
            made.id,
            lambda view: view.status not in _NOT_YET,
            clock=cli.clock,
            progress=progress,
            timeout_s=timeout_s,
        )


def _complain(cli: Cli, view: SessionView) -> None:
    words, step = why_failed(view.reason, view.detail)
    line = "; ".join(part for part in (f"moorage: {view.name} does not run: {words}", step) if part)
    cli.err.print(Text(printable(line, one_line=True)), soft_wrap=True)
    kernel = current_kernel(view)
    if kernel is not None and kernel.log_tail:
        cli.err.print(Text(printable(kernel.log_tail.rstrip())), soft_wrap=True)
