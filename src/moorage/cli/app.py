"""The root command and its groups. A command's module registers itself here when the command runs.

Grammar: short verbs at the root act on sessions and endpoints (``run``, ``stop``, ``describe``).
All other commands are ``moorage NOUN VERB`` with a plural noun; the noun alone lists. ``manager``,
``agent`` and ``proxy``, in the singular, run the daemons and set them up on their node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import moorage
from moorage.cli.command_groups import COMMAND_GROUPS
from moorage.cli.context import Cli, command, with_shared_options
from moorage.cli.errors import ErrorReportingGroup
from moorage.cli.help_pages import ShortHelp, help_records, is_global
from moorage.cli.quick_parameters import QuickParameters
from moorage.cli.suggestions import Suggesting

_ALIASES = {"ls": "list", "rm": "delete"}
_HELP: dict[str, str] = {}
_MODULES: dict[str, tuple[str, ...]] = {}


def add_commands(commands: Mapping[str, tuple[str, ...]]) -> None:
    """Add commands and groups to the root, each with its line in ``moorage --help`` and the modules
    that register it.

    A command's modules are imported only when it runs, because a single command needs only a
    fraction of all imports.
    """
    for name, (help, *modules) in commands.items():
        _MODULES[name] = tuple(modules)
        _HELP[name] = help


class _Stub(TyperCommand):
    """A command that has not been imported yet; only its line in ``moorage --help`` exists."""


class _RootGroup(Suggesting, ErrorReportingGroup):
    """The root command. ``commands`` holds the commands that are imported so far."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*super().list_commands(ctx), *_MODULES})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        stub = self.commands.get(cmd_name)
        if isinstance(stub, _Stub):
            return stub
        modules = _MODULES.get(cmd_name, ())
        if modules and not (cmd_name in self.commands and sys.modules.keys() >= set(modules)):
            for module in modules:
                import_module(module)
            self.commands.update(typer.main.get_group(app).commands)
        return super().get_command(ctx, cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete names from their lines in ``moorage --help``, without importing the commands."""
        imported = self.commands
        stubs = {name: _Stub(name, help=line) for name, line in _HELP.items()}
        self.commands = {**stubs, **imported}
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = imported

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Commands by task, then the options. Only here are the global options described."""
        self.format_commands(ctx, formatter)
        parameters = self.get_params(ctx)
        own = [parameter for parameter in parameters if not is_global(parameter)]
        shared = [parameter for parameter in parameters if is_global(parameter)]
        for title, group in (("Global options", shared), ("Options", own)):
            with formatter.section(title):
                formatter.write_dl(help_records(group, ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        own = {name: command.get_short_help_str(200) for name, command in self.commands.items()}
        lines = own | _HELP
        for title, names in COMMAND_GROUPS.items():
            if rows := [(name, lines[name]) for name in names if name in lines]:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=16)


class VerbGroup(Suggesting, ShortHelp, QuickParameters, TyperGroup):
    """Commands about one subject."""


class NounGroup(VerbGroup):
    """Commands about one kind of object. ``ls`` and ``rm`` are aliases of ``list`` and
    ``delete``."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))


app = typer.Typer(
    name="moorage",
    cls=_RootGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run models and jobs on GPUs, behind one OpenAI-compatible address.",
    epilog=(
        "First steps: `moorage demo`, then `moorage serve MODEL`. `moorage COMMAND --help` "
        "shows examples."
    ),
)


def full_root() -> Any:
    """The root command with all added commands, for code that describes them all. Looking them up
    one by one would rebuild all earlier commands each time."""
    for modules in _MODULES.values():
        for module in modules:
            import_module(module)
    return typer.main.get_command(app)


def noun(name: str, help: str) -> typer.Typer:
    """The group ``moorage NAME``, for commands about one kind of object."""
    group = typer.Typer(cls=NounGroup)
    app.add_typer(group, name=name, help=help)
    return group


def list_command(group: typer.Typer) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a noun's ``list`` command, which also runs when the noun is given
    alone."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        def alone(cli: Cli) -> None:
            if cli.subcommand is None:
                function(cli)

        group.callback(invoke_without_command=True)(with_shared_options(alone))
        command(group, "list")(function)
        return function

    return register


def _print_version(wanted: bool) -> None:
    if wanted:
        print(moorage.__version__)
        raise typer.Exit


def _root(
    cli: Cli,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Run models and jobs on GPUs, behind one OpenAI-compatible address."""


app.callback()(with_shared_options(_root))


@command(app)
def version(cli: Cli) -> None:
    """Print the version of this program."""
    if cli.json:
        cli.print_json({"version": moorage.__version__})
    else:
        print(moorage.__version__)
