"""``moorage run``: runs a batch session, follows its log, and exits with its exit code."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli import exit_codes, parse, task_list, times
from moorage.cli.app import app
from moorage.cli.attempt_log import AttemptLog
from moorage.cli.completion import session_names
from moorage.cli.context import Cli, Output, command, duration_option
from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.cli.output import LogWriter, current_kernel, printable
from moorage.cli.piped_input import feed, reading_from_pipe
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
    Force,
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
    Reuse,
    Secrets,
    SessionFile,
    SessionRuntime,
    Strict,
    Template,
    TemplateStart,
    Workspace,
    create_session,
    session_request,
)
from moorage.cli.summary import explain_failure, has_ended
from moorage.cli.wait import until_session
from moorage.common.model.errors import InvalidInput
from moorage.common.model.reasons import Reason
from moorage.common.model.status import BEFORE_RUNNING, Result, SessionType, Status
from moorage.common.model.task_states import MAX_WORKERS
from moorage.sdk import ApiError, Unreachable

if TYPE_CHECKING:
    from moorage.cli.array_runs import ArrayRequest
    from moorage.common.model.spec import SessionSpec
    from moorage.common.views.pipelines import PipelineView
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client

_NOT_OF_THE_SPEC = (
    "cli",
    "array",
    "wait",
    "strict",
    "force",
    "detach",
    "stop_on_interrupt",
    "stdin",
    "remove",
)

_Command = Annotated[
    list[str] | None,
    typer.Argument(help="After --: program and arguments. With --template, its own by default."),
]
_Timeout = Annotated[
    float | None, duration_option("Time limit of the run; after it, the session is stopped.")
]
_StartsAt = Annotated[
    str | None,
    typer.Option(
        help="Start no earlier than this: a duration from now (2h) or 2026-12-24T18:00:00Z."
    ),
]
_Retries = Annotated[
    int | None, typer.Option(min=0, max=20, help="Number of retries when it fails.")
]
_After = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME[:any|failure]: start after that session succeeded, ended or failed.",
        autocompletion=session_names,
    ),
]
_IfFailed = Annotated[
    str | None, typer.Option("--if-dependency-fails", help="end (the default) or wait.")
]
_Tasks = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Run the program once for each line of this file (- for standard input), in place of "
        "{} in its arguments. Without a program, each line is a shell command.",
    ),
]
_Workers = Annotated[
    int | None,
    typer.Option(
        min=1, max=MAX_WORKERS, help="With --tasks: how many run at a time. Default: one per CPU."
    ),
]
_TaskRetries = Annotated[
    int | None,
    typer.Option(
        min=0, max=20, help="With --tasks: how often a task that failed or is LOST runs again."
    ),
]
_TaskTimeout = Annotated[
    float | None, duration_option("With --tasks: time limit of one task.", "--task-timeout")
]
_Array = Annotated[
    str | None,
    typer.Option(
        metavar="INDEXES[%N]",
        help="Run it once for each index, such as 0-99%10, 0-9:2 or 1,3,8-20:4; at most N at a "
        "time. The program finds its index in JOB_COMPLETION_INDEX.",
    ),
]
_Detach = Annotated[bool, typer.Option("--detach", "-d", help="Same as --no-wait.")]
_StopOnInterrupt = Annotated[
    bool, typer.Option("--stop-on-interrupt", help="Also stop the session at Ctrl-C or SIGTERM.")
]
_Stdin = Annotated[
    bool,
    typer.Option(
        "--stdin", "-i", help="Pass standard input to the program. Needs a shell in the session."
    ),
]
_Remove = Annotated[
    bool, typer.Option("--rm", help="Remove the session's record when it has ended.")
]


@dataclass(frozen=True, slots=True)
class _Following:
    """How the command handles the session after creating it."""

    wait: bool
    strict: bool
    force: bool
    stop_on_interrupt: bool
    stdin: bool
    remove: bool
    array: str | None = None


@command(app)
def run(
    cli: Cli,
    command: _Command = None,
    array: _Array = None,
    name: Name = None,
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
    timeout: _Timeout = None,
    retries: _Retries = None,
    after: _After = None,
    if_failed: _IfFailed = None,
    starts_at: _StartsAt = None,
    reuse: Reuse = None,
    tasks: _Tasks = None,
    workers: _Workers = None,
    task_retries: _TaskRetries = None,
    task_timeout: _TaskTimeout = None,
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
    template: Template = None,
    parameters: Parameters = None,
    file: SessionFile = None,
    strict: Strict = False,
    force: Force = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it until it ends.")] = True,
    detach: _Detach = False,
    stop_on_interrupt: _StopOnInterrupt = False,
    stdin: _Stdin = False,
    remove: _Remove = False,
) -> None:
    """Run a program as a batch session, print its log, and exit with its exit code.

    \b
    Examples:
      moorage run -- python train.py --epochs 3
      moorage run --gpus 1 --cpus 4 --memory 16GiB -e SEED=1 --timeout 1h -- ./job.sh
      moorage run -f session.yaml --gpus 2
      moorage run --image python:3.12 -- python -c "print('hello')"
      moorage run --cluster 4 --cluster-mode multi-node --gpus 8 -- ./torchrun.sh
      moorage run --template train --set epochs=3
      moorage run --name eval --after train --no-wait -- python eval.py
      moorage run --tasks list.txt --cpus 8 -- ./convert.sh {}
      moorage run -i --rm -- python -m json.tool <data.json
      moorage run --array 0-9:3%2 -- sh -c 'echo part $JOB_COMPLETION_INDEX'
    """
    given = {name: value for name, value in locals().items() if name not in _NOT_OF_THE_SPEC}
    if not command and template is None and file is None and tasks is None:
        raise InvalidInput("there is no program", next_step="moorage run -- PROGRAM ARGUMENTS")

    how = _Following(
        wait and not detach,
        strict,
        force=force,
        stop_on_interrupt=stop_on_interrupt or stdin,
        stdin=stdin,
        remove=remove,
        array=array,
    )
    _start(cli, _checked(given, how), how)


def _start(cli: Cli, given: dict[str, Any], how: _Following) -> None:
    request = batch_spec(given, cli.clock.now())
    if how.array is None:
        _run(cli, request, how)
        return

    from moorage.cli.array_runs import ArrayRequest

    _run_array(cli, ArrayRequest.of(cli, request, how.array, given["name"]), how)


def _checked(given: dict[str, Any], how: _Following) -> dict[str, Any]:
    """The session's options. Raises ``InvalidInput`` if they conflict with the way the session is
    followed."""
    if not how.wait and (how.stdin or how.remove):
        raise InvalidInput(
            f"{'--stdin' if how.stdin else '--rm'} needs this command to wait, so it cannot be "
            "combined with --detach",
            next_step="drop one of them",
        )

    others = {"--stdin": how.stdin, "--rm": how.remove, "--tasks": given.get("tasks") is not None}
    for option, is_given in others.items() if how.array is not None else ():
        if is_given:
            raise InvalidInput(
                f"{option} is for one session, so it cannot be combined with --array",
                next_step="drop one of them",
            )

    return given | _with_input(given) if how.stdin else given


def _with_input(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a session with standard input. Raises ``InvalidInput`` for options that
    conflict with it."""
    named = {
        "a program on the command line": not given["command"],
        "no --retries": given["retries"],
        "no --cluster": (given["cluster"] or 1) > 1,
        "no --tasks": given["tasks"],
        "no --reuse": given["reuse"] not in (None, "never"),
    }
    for needs, missing in named.items():
        if missing:
            raise InvalidInput(
                f"--stdin needs {needs}: the input can be read only once, by one program",
                next_step="drop --stdin",
            )

    return {"command": reading_from_pipe(given["command"]), "reuse": "never"}


def batch_spec(given: Mapping[str, Any], now: datetime) -> SessionSpec | TemplateStart:
    """The session to create for the options of ``run``, which are given by parameter name."""
    given = {**given, **task_list.options(given)}

    starts_at = given["starts_at"]
    own = {
        "tasks": given.get("tasks"),
        "timeout_s": given["timeout"],
        "retries": given["retries"],
        "reuse": given["reuse"],
        "depends_on": [parse.dependency(text) for text in given["after"]]
        if given["after"]
        else None,
        "dependency_failed": given["if_failed"],
        "starts_at": None if starts_at is None else times.future(starts_at, now, "--starts-at"),
    }
    return session_request(SessionType.BATCH, given, own)


def _run(cli: Cli, spec: SessionSpec | TemplateStart, how: _Following) -> None:
    created: list[SessionView] = []

    async def work(client: Client) -> SessionView:
        created.append(await create_session(cli, client, spec, strict=how.strict, force=how.force))
        if not how.wait:
            return created[0]
        async with _input_of(cli, client, created[0], how.stdin):
            view = await _follow(cli, client, created[0])
        if how.remove:
            await _remove(cli, client, view)
        return view

    try:
        with terminated_like_ctrl_c() as interrupted:
            view = cli.run(work)
    except KeyboardInterrupt:
        _say_what_remains(cli, created, how.stop_on_interrupt)
        raise typer.Exit(interrupted.exit_code) from None

    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME or not how.wait:
        print(view.name)

    if has_ended(view):
        raise typer.Exit(_exit_code(cli, view))


def _run_array(cli: Cli, request: ArrayRequest, how: _Following) -> None:
    from moorage.cli import array_runs

    made: list[PipelineView] = []

    async def work(client: Client) -> PipelineView:
        made.append(await array_runs.submit(cli, client, request, force=how.force))
        return await array_runs.follow(cli, client, made[0]) if how.wait else made[0]

    try:
        with terminated_like_ctrl_c() as interrupted:
            view = cli.run(work)
    except KeyboardInterrupt:
        array_runs.say_what_remains(cli, made, stop=how.stop_on_interrupt)
        raise typer.Exit(interrupted.exit_code) from None

    if cli.json:
        cli.print_json(view)
    elif cli.output is Output.NAME or not how.wait:
        print(view.name)

    if how.wait:
        raise typer.Exit(array_runs.exit_code(cli, view))


@asynccontextmanager
async def _input_of(
    cli: Cli, client: Client, session: SessionView, wanted: bool
) -> AsyncIterator[None]:
    """Forward standard input within the context, if ``wanted``."""
    if not wanted:
        yield
        return

    from moorage.common.aio.tasks import cancel_and_wait, spawn

    feeding = spawn("run.feed", feed(cli, client, session))
    try:
        yield
    finally:
        await cancel_and_wait(feeding)


async def _remove(cli: Cli, client: Client, view: SessionView) -> None:
    try:
        await client.sessions.delete(view.id)
    except (ApiError, Unreachable) as error:
        cli.note(f"moorage: {view.name} was not removed: {printable(str(error), one_line=True)}")


def _say_what_remains(cli: Cli, created: list[SessionView], stop: bool) -> None:
    if not created:
        cli.note("moorage: interrupted; `moorage ps` shows whether the session was created")
        return

    ref = created[0].name
    if not stop:
        cli.note(
            f"moorage: {ref} keeps running; `moorage logs -f {ref}` follows it, `moorage why "
            f"{ref}` shows what it waits for, `moorage stop {ref}` stops it, as "
            "--stop-on-interrupt would have"
        )
        return

    cli.run(lambda client: client.sessions.stop(created[0].id))
    cli.note(f"moorage: {ref} is being stopped; `moorage describe {ref}` shows its state")


def _has_log(copied: int, view: SessionView) -> bool:
    """Whether an attempt later than ``copied`` has started."""
    return view.status not in BEFORE_RUNNING or view.attempt > copied + 1


def _is_over(attempt: int, view: SessionView) -> bool:
    return view.attempt > attempt or has_ended(view)


async def _follow(cli: Cli, client: Client, created: SessionView) -> SessionView:
    """Copy the log of each attempt to stdout until the session has ended."""
    sink = LogWriter(sys.stdout if cli.output is Output.TABLE else sys.stderr)
    copied = 0  # attempts whose logs were copied
    stages = StageProgress(cli, created.name)
    while True:
        with stages as progress:
            view = await until_session(
                client,
                created,
                partial(_has_log, copied),
                clock=cli.clock,
                progress=progress,
            )

        for attempt in range(copied + 1, view.attempt):  # attempts that ended between two reads
            await AttemptLog(cli, client, view=view, sink=sink, attempt=attempt).copy()
            cli.note(f"moorage: {created.name} is retried after attempt {attempt}")

        copied = view.attempt - 1
        if view.status in BEFORE_RUNNING:
            continue

        log = AttemptLog(cli, client, view=view, sink=sink, attempt=view.attempt)
        await log.copy()
        copied = view.attempt
        view = await until_session(
            client,
            created,
            partial(_is_over, copied),
            clock=cli.clock,
        )
        await log.finish()

        if view.attempt == copied:
            kernel = current_kernel(view)
            if not log.shown and kernel is not None and kernel.log_tail:
                sink.write(kernel.log_tail.encode(), final=True)

            return view

        cli.note(f"moorage: {created.name} is retried after attempt {copied}")


def _exit_code(cli: Cli, view: SessionView) -> int:
    kernel = current_kernel(view)
    code = kernel.exit_code if kernel else None
    if view.result is Result.SUCCESS:
        return 0

    failure, step = explain_failure(view.reason, view.detail)
    # If another kernel ended the cluster, the exit code of main1 only shows that it was stopped.
    stopped = kernel is not None and view.spec.size > 1 and kernel.status is not Status.ERROR
    if code is None or stopped or view.reason not in (Reason.EXIT_NONZERO, Reason.EXIT_ZERO):
        line = "; ".join(part for part in (f"moorage: {view.name} failed: {failure}", step) if part)
        cli.err.print(printable(line, one_line=True), soft_wrap=True)

    return exit_codes.of_failure(view.reason, view.detail, None if stopped else code)
