"""Code that runs in a session, given on the command line or typed at a prompt."""

from __future__ import annotations

import base64
import codeop
import getpass
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from moorage.cli import exit_codes
from moorage.cli.context import Cli
from moorage.cli.interrupts import terminated_like_ctrl_c
from moorage.cli.output import has_colours, printable, uncoloured

if TYPE_CHECKING:
    from moorage.sdk import Client
    from moorage.sdk.code import Execution

_NO_TERMINAL = "[{kind}, {size} bytes: use -o json to get it]"
_TEXTS = ("text/plain", "text/markdown", "text/html")


def run_code(cli: Cli, name: str, code: str, options: dict[str, Any]) -> None:
    """Run code, print what it prints, and exit with its exit code."""
    try:
        with terminated_like_ctrl_c() as interrupted:
            ran = _run(cli, name, code, options)
    except KeyboardInterrupt:
        raise typer.Exit(interrupted.exit_code) from None

    if cli.json:
        fields = {name: getattr(ran, name) for name in ("run_id", "status", "exit_code", "reason")}
        cli.print_json(fields | {"console": ran.items})

    raise typer.Exit(exit_codes.of_code(ran.status, ran.exit_code))


def converse(cli: Cli, name: str, options: dict[str, Any]) -> None:
    """Run typed code until the input ends. Ctrl-C interrupts the code, not the conversation."""
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
                _run(cli, name, code, options)
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


def _run(cli: Cli, name: str, code: str, options: dict[str, Any]) -> Execution:
    async def work(client: Client) -> Execution:
        from moorage.common.views.executions import ExecutionSpec

        spec = ExecutionSpec(code=code, **options)
        view = await client.executions.start(name, spec)
        try:
            return await client.executions.resume(
                name,
                view,
                on_item=None if cli.json else partial(_print, cli),
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


def _print(cli: Cli, item: dict[str, Any]) -> None:
    match item["type"]:
        case "stream":
            stream = sys.stderr if item["name"] == "stderr" else sys.stdout
            print(item["text"], end="", file=stream, flush=True)
        case "result" | "display":
            print(_text_of(item["data"]), flush=True)
        case "error":
            # ipykernel colours tracebacks, whoever reads them
            text = "\n".join(item["traceback"]) or f"{item['name']}: {item['message']}"
            print(text if has_colours(cli.err) else uncoloured(text), file=sys.stderr)
        case "truncated" | "gap":
            print("moorage: some output was dropped", file=sys.stderr)


def _text_of(data: dict[str, Any]) -> str:
    """The part of a MIME bundle that a terminal can show."""
    for kind in _TEXTS:
        if kind in data:
            return str(data[kind])
    kind, value = next(iter(data.items()), ("nothing", ""))
    size = len(base64.b64decode(value)) if kind.startswith("image/") else len(str(value))
    return _NO_TERMINAL.format(kind=kind, size=size)
