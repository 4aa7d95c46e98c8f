"""The context of a command: the shared options, the connection to the manager, and the two
consoles."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import typer

from moorage.cli.help_pages import GLOBAL, HelpedCommand
from moorage.cli.output import printable, takes_unicode, to_json
from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.model.durations import format_duration, parse_duration
from moorage.common.model.errors import InvalidInput
from moorage.sdk.errors import ApiError
from moorage.sdk.installation.connection import Connection, find_connection

if TYPE_CHECKING:
    from rich.console import Console

    from moorage.sdk import Client

P = ParamSpec("P")
T = TypeVar("T")


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    NAME = "name"
    YAML = "yaml"


# The client itself waits longer than this for a slow manager.
_PLAIN_READ_S = 5.0
SHARED: dict[str, Any] = {
    "url": Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            rich_help_panel=GLOBAL,
            help=(
                "Address of the manager, https:// or unix:///path. Default: MOORAGE_URL, or as "
                "saved."
            ),
        ),
    ],
    "key_file": Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=GLOBAL,
            help=(
                "File with the API key. Default: MOORAGE_API_KEY, MOORAGE_API_KEY_FILE, or the "
                "admin key."
            ),
        ),
    ],
    "openai_url": Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            rich_help_panel=GLOBAL,
            help="Address of the proxy, ending in /v1. Default: MOORAGE_OPENAI_URL, or as saved.",
        ),
    ],
    "ca_file": Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=GLOBAL,
            help="Certificate authority (PEM) to trust for https. Default: MOORAGE_CA_FILE, or as "
            "saved.",
        ),
    ],
    "output": Annotated[
        Output | None,
        typer.Option("--output", "-o", rich_help_panel=GLOBAL, help="Format of the results."),
    ],
    "no_color": Annotated[
        bool | None,
        typer.Option(
            "--no-color",
            rich_help_panel=GLOBAL,
            help="Print without colours and bold text, like NO_COLOR=1.",
        ),
    ],
}


class Cli:
    """One invocation of the command line. ``given`` contains the shared options that were set.

    ``subcommand``: the command that follows, for a group's callback; None if the group is given
    alone.
    """

    def __init__(
        self, given: dict[str, Any], *, subcommand: str | None = None, clock: Clock | None = None
    ) -> None:
        self.subcommand = subcommand
        self.clock = clock or SystemClock()
        self.output = Output(given.get("output") or Output.TABLE)
        self._given = given
        self._plain = True if given.get("no_color") or os.environ.get("NO_COLOR") else None

    @cached_property
    def out(self) -> Console:
        return _console(sys.stdout, self._plain)

    @cached_property
    def err(self) -> Console:
        return _console(sys.stderr, self._plain)

    @cached_property
    def err_is_terminal(self) -> bool:
        """Whether stderr is a terminal, without importing rich in the usual case that a script
        runs the command."""
        forced = any(name in os.environ for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
        return (forced or sys.stderr.isatty()) and self.err.is_terminal

    @property
    def json(self) -> bool:
        return self.output in (Output.JSON, Output.YAML)

    @property
    def wide(self) -> bool:
        return self.output is Output.WIDE

    @property
    def connection(self) -> Connection:
        options = {
            name: self._given.get(name) for name in ("url", "key_file", "openai_url", "ca_file")
        }
        return find_connection(os.environ, **options)

    def shared(self, name: str) -> str | None:
        """A shared option's value, if it was given."""
        value = self._given.get(name)
        return None if value is None else str(value)

    def connection_flags(self) -> list[str]:
        """The shared connection options that were given, for another process of the command
        line."""
        names = ("url", "key_file", "openai_url", "ca_file")
        given = [(name, self._given[name]) for name in names if self._given.get(name)]
        return [
            part for name, value in given for part in (f"--{name.replace('_', '-')}", str(value))
        ]

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Run ``work`` to completion with a connected client."""
        # Imported here because imports take most of a command's time.
        import asyncio

        from moorage.sdk import Client

        async def main() -> T:
            at = self.connection
            async with Client(at.url, at.key, ca_file=at.ca_file) as client:
                client.on_warning = self.warn
                done: T = await work(client)
                if at.url != at.http_url:
                    from moorage.sdk.installation.local_manager import keep_socket

                    keep_socket(os.environ, at.url)

                for (kind, name), why in client.unreadable.items():
                    self.note(f"{kind} {name} {why}")

                return done

        return asyncio.run(main())

    def read_lists(self, *lists: tuple[str, Mapping[str, str | None]]) -> list[Any]:
        """The items of REST API lists, with their fields as attributes, read quickly and without
        validation. Raises ``plain_reads.FAILURES``, even where the SDK's client might succeed."""
        from moorage.cli.plain_reads import read_lists

        names = ("url", "key_file", "ca_file")
        return read_lists({n: self._given.get(n) for n in names}, lists, timeout_s=_PLAIN_READ_S)

    def read_object(self, path: str) -> Any:
        """The object at ``path`` of the REST API, read like ``read_lists``."""
        from moorage.cli.plain_reads import PlainReads

        names = ("url", "key_file", "ca_file")
        with PlainReads({n: self._given.get(n) for n in names}, timeout_s=_PLAIN_READ_S) as reads:
            return reads.get(path)

    def print_only_names(self) -> None:
        """Let ``-q`` mean ``-o name``. Raises ``InvalidInput`` if another format was given."""
        if self._given.get("output") not in (None, Output.NAME):
            raise InvalidInput(
                f"-q prints names, and -o {self.output} prints more", next_step="leave out one"
            )
        self.output = Output.NAME

    def print_manifests(self, views: Iterable[Any]) -> None:
        """Print views as YAML that ``moorage apply`` accepts."""
        from moorage.cli import manifests

        print(manifests.render([manifests.manifest_of(view) for view in views]), end="")

    def print_json(self, value: Any) -> None:
        """Print JSON, or YAML with ``-o yaml``."""
        if self.output is Output.YAML:
            import yaml

            unicode = takes_unicode()
            print(yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=unicode), end="")
        else:
            print(to_json(_plain(value)))

    def warn(self, warning: str) -> None:
        """Print a warning from the manager on stderr."""
        self.note(printable(f"moorage: warning: {warning}", one_line=True))

    def note(self, line: str) -> None:
        """Print one line on stderr, for progress and notes, never for results."""
        self.err.print(printable(line), soft_wrap=True)


def command(app: typer.Typer, name: str | None = None, **settings: Any) -> Callable[..., Any]:
    """Register ``function(cli, ...)`` as a command that also accepts the shared options."""

    def register(
        function: Callable[Concatenate[Cli, P], None],
    ) -> Callable[Concatenate[Cli, P], None]:
        app.command(name, **{"cls": HelpedCommand} | settings)(with_shared_options(function))
        return function

    return register


def duration_option(
    help: str, *names: str, min_s: float = 0.0, max_s: float | None = None, **settings: Any
) -> Any:
    """A typer option for seconds as ``float``, written as a duration between ``min_s`` and
    ``max_s``."""

    def parse(value: str | float) -> float:
        # a default is a number
        seconds = parse_duration(value) if isinstance(value, str) else value
        if seconds < min_s or (max_s is not None and seconds > max_s):
            allowed = f"at least {format_duration(min_s)}"
            if max_s is not None:
                allowed += f", at most {format_duration(max_s)}"
            raise ValueError(f"{value!r} is not allowed: {allowed}")
        return seconds

    return typer.Option(*names, parser=parse, metavar="DURATION", help=help, **settings)


def with_shared_options(function: Callable[Concatenate[Cli, P], None]) -> Callable[..., None]:
    """``function`` with a signature for typer: its own parameters without ``cli``, and the shared
    options.

    Shared options can be given before or after the command; the later one wins.
    """
    hints = get_type_hints(function, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(function).parameters.values())[1:]
    ]
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [inspect.Parameter(n, keyword, default=None, annotation=a) for n, a in SHARED.items()]
    context = inspect.Parameter(
        "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )

    def call(ctx: typer.Context, **values: Any) -> None:
        given = dict(ctx.obj or {})
        given |= {n: value for n in SHARED if (value := values.pop(n)) is not None}
        ctx.obj = given
        try:
            function(Cli(given, subcommand=ctx.invoked_subcommand), **values)  # type: ignore[call-arg]  # typer passes all by keyword
        except (ApiError, ValueError) as error:
            raise _in_terms_of(ctx, error) from error

    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    call.__signature__ = inspect.Signature([context, *own, *shared])  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in (context, *own, *shared)}
    call.__name__ = function.__name__
    call.__doc__ = function.__doc__

    return call


def _in_terms_of(ctx: typer.Context, error: Exception) -> Exception:
    """``error``, with field names replaced by options of the command."""
    from moorage.cli import option_errors

    options = option_errors.options_of(ctx.command.params)
    if isinstance(error, ApiError):
        if error.status == 422:
            option_errors.name_the_option(error, options)
        return error

    from pydantic import ValidationError  # most commands do not need this import

    if not isinstance(error, ValidationError):
        return error

    return option_errors.validation_error(error.errors(), options)


def _console(stream: Any, plain: bool | None) -> Console:
    from rich.console import Console

    # Markup, emoji codes and highlighting stay off, because most of the output is text written by
    # users.
    given: dict[str, Any] = {"file": stream, "markup": False, "emoji": False, "highlight": False}
    # Without a colour system, there is no bold text either.
    console = Console(**given, color_system=None if plain else "auto")
    return console if console.is_terminal else Console(**given, color_system=None, width=10_000)


def _plain(value: Any) -> Any:
    """``value`` for JSON. Views become dicts, also within lists and dicts."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value
