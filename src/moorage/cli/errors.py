"""Errors of commands: their exit codes, and the line on stderr that reports each with its next
step."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from moorage.cli.exit_codes import AUTH, FAILURE, INTERRUPTED, NO_PROGRAM, NOT_FOUND, TIMEOUT, USAGE
from moorage.cli.output import printable
from moorage.cli.quick_parameters import QuickParameters
from moorage.common.model.errors import (
    BodyTooLarge,
    ConfigError,
    Forbidden,
    InvalidInput,
    MalformedBody,
    MoorageError,
    NotFound,
    Unauthenticated,
)
from moorage.sdk.errors import ApiError

_BY_HTTP = {400: USAGE, 413: USAGE, 422: USAGE, 404: NOT_FOUND, 401: AUTH, 403: AUTH}


class WaitTimeout(MoorageError):
    """A wait took longer than --timeout allows."""

    code = "timeout"


class ProgramMissing(MoorageError):
    """This machine lacks a program that the command starts."""

    code = "program-missing"


def exit_code(error: Exception) -> int:
    if isinstance(error, ApiError):
        return _BY_HTTP.get(error.status, FAILURE)
    if isinstance(error, InvalidInput | MalformedBody | BodyTooLarge | ConfigError):
        return USAGE
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, Unauthenticated | Forbidden):
        return AUTH
    if isinstance(error, ProgramMissing):
        return NO_PROGRAM

    return TIMEOUT if isinstance(error, WaitTimeout) else FAILURE


def one_line(error: MoorageError) -> str:
    """The error with its next step, as one line without control characters."""
    step = f"; {error.next_step}" if error.next_step else ""
    if isinstance(error, ApiError) and error.status == 401 and not step:
        step = "; give the API key with --key-file or MOORAGE_API_KEY"

    # Messages of the proxy and of engines are sentences.
    message = error.message.removesuffix(".") if step else error.message
    return printable(message + step, one_line=True)


class ErrorReportingGroup(QuickParameters, TyperGroup):
    """The root command, which turns every known error of a command into one line and an exit
    code."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
        if not standalone_mode:
            return super().main(
                arguments,
                prog_name,
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        try:
            code = super().main(
                arguments,
                prog_name,
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
            sys.stdout.flush()  # here, because nobody reports what fails at the exit
        except BrokenPipeError:
            code = FAILURE
        except typer.TyperException as error:
            code = error.exit_code
            where = getattr(error, "ctx", None)
            path = where.command_path if where else "moorage"
            message = error.format_message().rstrip(".") + _missing_dashes(error, arguments)
            _report(message if message.endswith("?") else f"{message}; try `{path} --help`")
        except MoorageError as error:
            code = exit_code(error)
            _report(one_line(error))
        except typer.Abort:
            code = INTERRUPTED

        sys.exit(code if isinstance(code, int) else 0)


def _missing_dashes(error: Exception, arguments: Sequence[str]) -> str:
    """A hint about an unknown option that belongs to a session's program; else empty."""
    option = getattr(error, "option_name", "")
    context = getattr(error, "ctx", None)
    misspelt = getattr(error, "possibilities", None)
    if not option or misspelt or context is None or "--" in arguments:
        return ""
    if all(parameter.name != "command" for parameter in context.command.params):
        return ""
    return "; if it is for the program, put -- before the program"


def _report(line: str) -> None:
    # Pydantic, which also parses typer's options, prefixes the message of every ValueError.
    print(f"moorage: {' '.join(line.split())}".replace("Value error, ", ""), file=sys.stderr)
