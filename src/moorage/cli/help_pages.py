"""Help of commands without the global options, which ``moorage --help`` describes once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand

from moorage.cli.quick_parameters import QuickParameters

# The panel of the options that every command has.
GLOBAL = "global"
_POINTER = "Global options, such as --url and -o: `moorage --help`."


class ShortHelp:
    """The help of a command or group, with its own options only."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)  # type: ignore[attr-defined]  # of the class beside this one
        own = [parameter for parameter in parameters if not is_global(parameter)]
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            if rows := help_records((p for p in own if p.param_type_name == kind), ctx):
                with formatter.section(title):
                    formatter.write_dl(rows)

        subcommands = getattr(self, "commands", {})
        if rows := [(name, subcommands[name].get_short_help_str(200)) for name in subcommands]:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

        if len(own) < len(parameters):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(_POINTER)


class HelpedCommand(ShortHelp, QuickParameters, TyperCommand):
    pass


def is_global(parameter: Any) -> bool:
    return getattr(parameter, "rich_help_panel", None) == GLOBAL


def help_records(parameters: Iterable[Any], ctx: Any) -> list[tuple[str, str]]:
    """The names of the parameters as they are typed, and their help."""
    records = (parameter.get_help_record(ctx) for parameter in parameters)
    return [record for record in records if record is not None]
