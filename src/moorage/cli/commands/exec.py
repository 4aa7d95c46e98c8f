"""``moorage exec``: runs a command, or code, in a running session."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli import exit_codes, parse, terminal
from moorage.cli.app import app
from moorage.cli.code_session import converse, run_code
from moorage.cli.completion import kernel_names, session_names
from moorage.cli.context import Cli, command, duration_option
from moorage.cli.output import printable
from moorage.cli.piped_input import send_input
from moorage.cli.session_options import Env, EnvFile
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.commands import ExecEnd, ExecSpec, Size
from moorage.common.model.errors import InvalidInput
from moorage.common.model.exit_codes import shell_exit_code

if TYPE_CHECKING:
    from moorage.sdk import Client
    from moorage.sdk.execution import RunningCommand

_BROKEN_PIPE = 141  # the same as for a program ended by SIGPIPE
_SaveImages = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Save the images that the code displays in this directory."),
]


@command(app, "exec")
def exec_(
    cli: Cli,
    name: Annotated[
        str, typer.Argument(help="A session's name or id.", autocompletion=session_names)
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: program and arguments.", show_default=False),
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="Pass standard input to the command.")
    ] = False,
    tty: Annotated[
        bool, typer.Option("--tty", "-t", help="Allocate a terminal; usually -it.")
    ] = False,
    env: Env = None,
    env_file: EnvFile = None,
    kernel: Annotated[
        str,
        typer.Option(
            help="In a cluster: run in this kernel, like sub1.", autocompletion=kernel_names
        ),
    ] = "main1",
    code: Annotated[
        str | None,
        typer.Option(help="Run this code; - reads it from stdin. Its definitions stay."),
    ] = None,
    repl: Annotated[
        bool, typer.Option("--repl", help="Run code that is typed at a prompt.")
    ] = False,
    language: Annotated[
        str | None, typer.Option(help="Language or kernelspec of the code. Default: python.")
    ] = None,
    timeout: Annotated[
        float | None, duration_option("Interrupt the code after this long.", min_s=0.1)
    ] = None,
    save_images: _SaveImages = None,
) -> None:
    """Run a command in a running session, and exit with its exit code.

    \b
    Examples:
      moorage exec -it dev -- bash
      moorage exec dev -- nvidia-smi
      moorage exec -i dev -- tar -x <data.tar
      moorage exec dev --code 'x = 6 * 7; x'
      moorage exec dev --code - --save-images plots <plot.py
      moorage exec dev --repl --language bash
    """
    asked = {"language": language, "timeout_s": timeout}
    options = {"kernel": kernel} | {
        name: value for name, value in asked.items() if value is not None
    }

    if sum((bool(command), code is not None, repl)) != 1:
        raise InvalidInput(
            "give exactly one of a command, --code and --repl",
            next_step="`moorage exec SESSION -- PROGRAM`, or `moorage exec SESSION --code TEXT`",
        )

    of_commands = {"--stdin": stdin, "--tty": tty, "--env": env, "--env-file": env_file}
    if not command and (given := [option for option, value in of_commands.items() if value]):
        raise InvalidInput(
            f"{given[0]} applies to a command, not to --code and --repl",
            next_step=f"drop {given[0]}, or run a program: `moorage exec SESSION -- PROGRAM`",
        )

    if code is not None:
        text = sys.stdin.read() if code == "-" else code
        return run_code(cli, name, text, options, images=save_images)
    if repl:
        return converse(cli, name, options, images=save_images)

    if command is None or len(options) > 1 or save_images is not None:
        raise InvalidInput(
            "--language, --timeout and --save-images apply only to --code and --repl",
            next_step="drop them",
        )

    variables = parse.environment(env, env_file) or {}
    return _run_command(
        cli, name, command=command, stdin=stdin, tty=tty, env=variables, kernel=kernel
    )


def _run_command(
    cli: Cli,
    name: str,
    command: list[str],
    stdin: bool,
    *,
    tty: bool,
    env: dict[str, str],
    kernel: str,
) -> None:
    if tty and not terminal.is_terminal():
        raise InvalidInput(
            "-t needs a terminal as standard input and output",
            next_step="drop -t; -i alone passes standard input",
        )

    if tty and "TERM" not in env and (term := os.environ.get("TERM")):
        env = env | {"TERM": term}

    rows, cols = terminal.size() if tty else (0, 0)
    size = Size(rows=rows, cols=cols)
    spec = ExecSpec(command=command, tty=tty, stdin=stdin, size=size, env=env, kernel=kernel)
    try:
        end = cli.run(lambda client: _interact(client, name, spec))
    except KeyboardInterrupt:
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(_BROKEN_PIPE) from None
    except asyncio.CancelledError:
        raise typer.Exit(exit_codes.FAILURE) from None

    if end.detail:
        line = "; ".join(part for part in (f"moorage: {end.detail}", end.next_step) if part)
        cli.note(printable(line, one_line=True))

    raise typer.Exit(shell_exit_code(end.exit_code))


async def _interact(client: Client, name: str, spec: ExecSpec) -> ExecEnd:
    task = asyncio.current_task()
    assert task is not None
    with ExitStack() as undo:
        undo.enter_context(terminal.cancel_on_signals(task))
        async with client.sessions.exec(name, spec) as command:
            if spec.tty and spec.stdin:
                undo.enter_context(terminal.raw())

            side_tasks = [spawn("exec.stdin", send_input(command))] if spec.stdin else []
            if spec.tty:
                side_tasks.append(spawn("exec.size", _send_sizes(command)))

            try:
                while (output := await command.read()) is not None:
                    terminal.write(*output)
            finally:
                await cancel_and_wait(*side_tasks)

    assert command.end is not None
    return command.end


async def _send_sizes(command: RunningCommand) -> None:
    async for rows, cols in terminal.window_changes():
        await command.resize(rows, cols)
