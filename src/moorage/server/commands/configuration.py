"""Commands that show the configuration: ``moorage config``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from moorage.cli import app
from moorage.server.commands.options import (
    ConfigFile,
    HomeDir,
    OutputFormat,
    Overrides,
    check_output_format,
    load_settings,
)

config_verbs = typer.Typer(help="Show the settings.", no_args_is_help=True)
app.add_typer(config_verbs, name="config")


@config_verbs.command("show")
def config_show(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also show where each value comes from.")] = False,
    output: OutputFormat = "table",
) -> None:
    """Show every setting in effect. Secrets are redacted."""
    rows = load_settings(config, home, sets).redacted()
    check_output_format(output)
    if output == "json":
        found = [(name, _value(text), where) for name, text, where in rows]
        values = {
            name: {"value": value, "origin": where} if origin else value for name, value, where in found
        }
        print(json.dumps(values, indent=2))
        return
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows) if origin else 0
    for name, value, where in rows:
        print(f"{name:<{name_width}}  {value:<{value_width}}" + (f"  {where}" if origin else ""))


def _value(text: str) -> Any:
    """A setting as JSON has it; ``***`` for a secret."""
    return text if text == "***" else json.loads(text)
