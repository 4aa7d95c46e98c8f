"""Code that runs in a session, given on the command line or typed at a prompt."""

from __future__ import annotations

import codeop
import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from moorage.cli import exit_codes
from moorage.cli.code_output import CodeOutput
from moorage.cli.context import Cli
from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.cli.output import printable

if TYPE_CHECKING:
    from moorage.sdk import Client
    from moorage.sdk.code import Execution


def run_code(
    cli: Cli, name: str, code: str, options: dict[str, Any], *, images: Path | None
) -> None:
    """Run code, print what it prints, and exit with its exit code. ``images``: the directory in
    which its images are saved."""
    output = CodeOutput(cli, images=images, quiet=cli.json)
    try:
        with terminated_like_ctrl_c() as interrupted:
            ran = _run(cli, name, code, options, output=output)
    except KeyboardInterrupt:
        raise typer.Exit(interrupted.exit_code) from None

    if cli.json:
        fields = {name: getattr(ran, name) for name in ("run_id", "status", "exit_code", "reason")}
        cli.print_json(fields | {"console": ran.items})

    raise typer.Exit(exit_codes.of_code(ran.status, ran.exit_code))


def converse(cli: Cli, name: str, options: dict[str, Any], *, images: Path | None) -> None:
    """Run typed code until the input ends. Ctrl-C interrupts the code, not the conversation.
    ``images``: as in ``run_code``."""
    output = CodeOutput(cli, images=images)
    is_python = options.get("language", "python").startswith("python")
    cli.note(f"Code runs in {printable(name, one_line=True)}. Ctrl-D leaves; its definitions stay.")

    while True:
        try:
            code = _read(is_python)
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
            continue

        if code.strip():
            try:
                _run(cli, name, code, options, output=output)
            except KeyboardInterrupt:
                cli.note("interrupted")


def _read(is_python: bool) -> str:
    """Read one line, or all lines of a Python statement that spans several."""
    lines = [input(">>> ")]
    while is_python:
        try:
            if codeop.compile_command("\n".join(lines)) is not None:
                break
        except (SyntaxError, ValueError, OverflowError):
            break  # the code kernel will report the error

        lines.append(input("... "))

    return "\n".join(lines)


def _run(
    cli: Cli, name: str, code: str, options: dict[str, Any], *, output: CodeOutput
) -> Execution:
    async def work(client: Client) -> Execution:
        from moorage.common.views.executions import ExecutionSpec

        spec = ExecutionSpec(code=code, **options)
        view = await client.executions.start(name, spec)
        try:
            return await client.executions.resume(
                name,
                view,
                on_item=output.show,
                on_input=_ask,
                kernel=spec.kernel,
            )
        except BaseException:
            await client.executions.interrupt(name, view.run_id, kernel=spec.kernel)
            raise

    ran = cli.run(work)
    if ran.reason:
        cli.note(f"moorage: {ran.reason}")

    return ran


def _ask(prompt: str, password: bool) -> str:
    """Read an answer from the terminal or from standard input. Raises ``EOFError`` at its end."""
    if sys.stdin.isatty():
        return getpass.getpass(prompt) if password else input(prompt)

    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")
