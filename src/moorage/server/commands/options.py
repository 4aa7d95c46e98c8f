"""Options shared by the commands that read settings, and the functions that act on them."""

from __future__ import annotations

import json
import os
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.common.config.loader import LoadedSettings, load, resolve_home
from moorage.common.etcd.access import etcd_access
from moorage.common.model.errors import ConfigError
from moorage.server import process

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file. Default: $MOORAGE_CONFIG, then HOME/moorage.toml."),
]
HomeDir = Annotated[Path | None, typer.Option("--home", help="State directory. Default: $MOORAGE_HOME.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting; `moorage config show` lists them."),
]
OutputFormat = Annotated[str, typer.Option("--output", "-o", help="table, json or yaml.")]


def load_settings(
    config: Path | None, home: Path | None, overrides: list[str] | None, **flags: str | Path | bool | None
) -> LoadedSettings:
    """Load the settings from etcd, file, environment, ``--set`` and the command's own flags.

    ``flags`` are named ``section__key``; None means that the flag was not given. Raises ``ConfigError``, and
    ``StartupError`` if etcd does not answer and never did.
    """
    given = _given(home, overrides, flags)
    loaded = load(config, os.environ, given)
    if (access := etcd_access(loaded.settings.etcd)) is None:
        return loaded
    from moorage.server.shared_settings import fetch

    shared = fetch(access, resolve_home(loaded.settings))
    return load(config, os.environ, given, shared)


def load_unshared(
    config: Path | None, home: Path | None, overrides: list[str] | None = None
) -> LoadedSettings:
    """The settings of this host only, also while etcd is away: how to reach it is among them, and so are
    names, listening addresses and sites. Raises ``ConfigError``."""
    return load(config, os.environ, _given(home, overrides, {}))


def _given(
    home: Path | None, overrides: list[str] | None, flags: Mapping[str, str | Path | bool | None]
) -> dict[str, str]:
    given = {name.replace("__", ".", 1): str(value) for name, value in flags.items() if value is not None}
    for override in overrides or []:
        name, equals, value = override.partition("=")
        if not equals or "." not in name:
            raise ConfigError(
                f"--set {override!r} is not SECTION.KEY=VALUE", next_step="for example: --set agent.id=node-7"
            )
        given[name.strip()] = value
    if home is not None:
        given["common.home"] = str(home)
    return given


def check_output_format(output: str) -> None:
    """Raises ``ConfigError`` unless ``output`` is ``table``, ``json`` or ``yaml``."""
    if output not in ("table", "json", "yaml"):
        raise ConfigError(f"--output {output!r} is not allowed", next_step="use table, json or yaml")


def print_data(value: Any, output: str) -> None:
    """``output``: ``json``, or ``yaml``."""
    if output == "yaml":
        import yaml

        print(yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False, allow_unicode=True), end="")
    else:
        print(json.dumps(value, indent=2))


def run_and_exit(main: Coroutine[Any, Any, int]) -> None:
    """Run ``main`` to completion, and exit the command with its exit code."""
    raise typer.Exit(process.run(main))
