"""``moorage run``: a batch session, its log as it comes, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, BinaryIO

import typer
from rich.text import Text

from moorage.cli import creating, parse
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
from moorage.cli.story import ended, why_failed
from moorage.cli.verbs.placement import Arch, Image, Labels, On, Priority
from moorage.cli.waiting import until_session
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, STARTING, Result, SessionType, Status
from moorage.common.views.resources import SessionView
from moorage.sdk import ApiError, Client, Unreachable

_NOT_YET = frozenset({Status.PENDING, *STARTING})


@verb(app)
def run(
    cli: Cli,
    command: Annotated[list[str], typer.Argument(help="After --: program and arguments.")],
    name: Name = None,
    resources: Resources = None,
    gpus: Gpus = None,
    env: Env = None,
    port: Ports = None,
    group: Group = None,
    timeout: Annotated[float | None, typer.Option(help="Longest run in seconds; then it is ended.")] = None,
    retries: Annotated[
        int | None, typer.Option(min=0, max=20, help="Run it again so often if it fails.")
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option(help="NAME[:any|failure]: after that session's success, or end.")
    ] = None,
    if_failed: Annotated[
        str | None, typer.Option("--if-dependency-fails", help="end (as if not given) or wait.")
    ] = None,
    starts_at: Annotated[str | None, typer.Option(help="Not before, like 2026-12-24T18:00:00Z.")] = None,
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
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it to its end.")] = True,
) -> None:
    """Run a program on a node, show its output, and exit with its exit code.

    \b
    Examples:
      moorage run -- python train.py --epochs 3
      moorage run --gpus 1 --resources mem=16GiB --timeout 3600 -- ./job.sh
      moorage run --image python:3.12 -- python -c "print('hello')"
      moorage run --cluster 4 --cluster-mode multi-node --gpus 8 -- ./torchrun.sh
      moorage run --name eval --after train --no-wait -- python eval.py
    """
    given = {name: value for name, value in locals().items() if name not in ("cli", "wait", "strict")}
    _run(cli, batch_spec(given), wait, strict)


def batch_spec(given: Mapping[str, Any]) -> SessionSpec:
    """What ``run`` was given as options, by the names of its parameters."""
    own = {
        "timeout_s": given["timeout"],
        "retries": given["retries"],
        "depends_on": [parse.dependency(text) for text in given["after"]] if given["after"] else None,
        "dependency_failed": given["if_failed"],
        "starts_at": given["starts_at"],
    }
    return creating.session_spec(SessionType.BATCH, given, own)


def _run(cli: Cli, spec: SessionSpec, wait: bool, strict: bool) -> None:
    made: list[SessionView] = []

    async def work(client: Client) -> SessionView:
        made.append(await creating.create(cli, client, spec, strict=strict))
        return await _follow(cli, client, made[0]) if wait else made[0]

    try:
        view = cli.run(work)
    except KeyboardInterrupt:
        ref = made[0].name if made else "it"
        cli.say(f"moorage: {ref} runs on; `moorage logs -f {ref}` follows it, `moorage stop {ref}` ends it")
        raise typer.Exit(INTERRUPTED) from None
    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME or not wait:
        print(view.name)
    if ended(view):
        raise typer.Exit(_exit_code(cli, view))


async def _follow(cli: Cli, client: Client, made: SessionView) -> SessionView:
    """Its log to stdout, that of each attempt in turn, until it has ended."""
    sink = (sys.stdout if cli.output is Output.TABLE else sys.stderr).buffer
    told = 0  # the attempts whose logs were copied
    while True:
        with Progress(cli.err, made.name) as progress:
            view = await until_session(
                client,
                made.id,
                lambda view, told=told: view.status not in _NOT_YET or view.attempt > told + 1,  # type: ignore[misc]
                clock=cli.clock,
                progress=progress,
            )
        for attempt in range(told + 1, view.attempt):  # it was over before anybody looked
            await _copy_log(cli, client, view, sink, attempt)
            cli.say(f"moorage: {made.name} is tried again after attempt {attempt}")
        told = view.attempt - 1
        if view.status in _NOT_YET:
            continue
        shown = await _copy_log(cli, client, view, sink, view.attempt)
        told = view.attempt
        view = await until_session(
            client,
            made.id,
            lambda view, told=told: view.attempt > told or ended(view),  # type: ignore[misc]
            clock=cli.clock,
        )
        if view.attempt == told:
            kernel = current_kernel(view)
            if not shown and kernel is not None and kernel.log_tail:
                sink.write(kernel.log_tail.encode())
                sink.flush()
            return view
        cli.say(f"moorage: {made.name} is tried again after attempt {told}")


async def _copy_log(cli: Cli, client: Client, view: SessionView, sink: BinaryIO, attempt: int) -> bool:
    """False when there was nothing to copy."""
    shown = False
    try:
        async for piece in client.logs(view.id, follow=True, attempt=attempt):
            sink.write(piece)
            sink.flush()
            shown = True
    except (ApiError, Unreachable) as error:
        if shown or (view.status in LIVE and attempt == view.attempt):
            cli.say(
                f"moorage: the log broke off ({printable(str(error), one_line=True)}); waiting for the end"
            )
    return shown


def _exit_code(cli: Cli, view: SessionView) -> int:
    kernel = current_kernel(view)
    code = kernel.exit_code if kernel else None
    if view.result is Result.SUCCESS:
        return 0
    words, step = why_failed(view.reason, view.detail)
    # Of a cluster that another kernel has ended, main1's exit code only says that it was stopped.
    stopped = kernel is not None and view.spec.size > 1 and kernel.status is not Status.ERROR
    if code is None or stopped or view.reason not in (Reason.EXIT_NONZERO, Reason.EXIT_ZERO):
        line = "; ".join(part for part in (f"moorage: {view.name} did not succeed: {words}", step) if part)
        cli.err.print(Text(printable(line, one_line=True)), soft_wrap=True)
    if code is None or code == 0 or stopped:
        return FAILURE
    return 128 - code if code < 0 else min(code, 255)
