"""Options shared by the commands that read settings, and the functions that act on them."""

from __future__ import annotations

import json
import os
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.cli.output import takes_unicode
from moorage.common.config.loader import LoadedSettings, load, resolve_home
from moorage.common.etcd.access import etcd_access
from moorage.common.model.errors import ConfigError
from moorage.server import process

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file. Default: $MOORAGE_CONFIG, then HOME/moorage.toml."),
]
HomeDir = Annotated[
    Path | None, typer.Option("--home", help="State directory. Default: $MOORAGE_HOME.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Any setting; `moorage config show` lists them."
    ),
]
OutputFormat = Annotated[str, typer.Option("--output", "-o", help="table, json or yaml.")]


@dataclass(frozen=True, slots=True)
class Flag:
    """An option of a command that sets a setting. A ``value`` of None means that the option was not
    given."""

    option: str
    setting: str
    value: str | Path | bool | None


def load_settings(
    config: Path | None, home: Path | None, overrides: list[str] | None, *flags: Flag
) -> LoadedSettings:
    """Load the settings from etcd, file, environment, ``--set`` and the command's own ``flags``.

    Raises ``ConfigError``, and ``StartupError`` if etcd does not answer and there is no copy of its
    settings.
    """
    given, options = _given(home, overrides, flags)
    loaded = load(config, os.environ, given, options=options)
    if (access := etcd_access(loaded.settings.etcd)) is None:
        return loaded

    from moorage.server.shared_settings import fetch

    shared = fetch(access, resolve_home(loaded.settings))
    return load(config, os.environ, flags=given, shared=shared, options=options)


def load_unshared(
    config: Path | None, home: Path | None, overrides: list[str] | None = None
) -> LoadedSettings:
    """The settings of this host only, which are available while etcd is down. They include names,
    listening addresses, sites and etcd's address. Raises ``ConfigError``."""
    given, options = _given(home, overrides, ())
    return load(config, os.environ, given, options=options)


def _given(
    home: Path | None, overrides: list[str] | None, flags: Sequence[Flag]
) -> tuple[dict[str, str], dict[str, str]]:
    """The values by setting, and the options that set them."""
    ascending = (*flags, *map(_override, overrides or []), Flag("--home", "common.home", home))
    used = [flag for flag in ascending if flag.value is not None]
    values = {flag.setting: str(flag.value) for flag in used}
    return values, {flag.setting: flag.option for flag in used}


def _override(text: str) -> Flag:
    name, equals, value = text.partition("=")
    if not equals or "." not in name:
        raise ConfigError(
            f"--set {text!r} is not SECTION.KEY=VALUE",
            next_step="for example: --set agent.id=node-7",
        )
    return Flag("--set", name.strip(), value)


def check_output_format(output: str) -> None:
    """Raise ``ConfigError`` unless ``output`` is ``table``, ``json`` or ``yaml``."""
    if output not in ("table", "json", "yaml"):
        raise ConfigError(
            f"--output {output!r} is not allowed", next_step="use table, json or yaml"
        )


def print_data(value: Any, output: str) -> None:
    """Print data as ``output``, which is ``json`` or ``yaml``."""
    if output == "yaml":
        import yaml

        print(
            yaml.safe_dump(
                json.loads(json.dumps(value)), sort_keys=False, allow_unicode=takes_unicode()
            ),
            end="",
        )
    else:
        print(json.dumps(value, indent=2))


def run_and_exit(main: Coroutine[Any, Any, int]) -> None:
    """Run ``main`` to completion, and exit the command with its exit code."""
    raise typer.Exit(process.run(main))
