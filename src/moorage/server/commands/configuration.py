"""``moorage config``: commands that show the configuration and change the settings that daemons
share in etcd."""

from __future__ import annotations

import asyncio
import getpass
import json
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli.app import VerbGroup, app
from moorage.common.aio.clock import SystemClock
from moorage.common.config.loader import check_shared
from moorage.common.etcd.access import etcd_access
from moorage.common.model.errors import ConfigError
from moorage.server.commands.options import (
    ConfigFile,
    HomeDir,
    OutputFormat,
    Overrides,
    check_output_format,
    load_settings,
    load_unshared,
    print_data,
)

if TYPE_CHECKING:
    from moorage.common.etcd.client import EtcdClient
    from moorage.common.etcd.shared_settings import SettingsChange, SharedSettings

config_verbs = typer.Typer(
    cls=VerbGroup,
    help="Show the settings, and change those that daemons share in etcd.",
    no_args_is_help=True,
)
app.add_typer(config_verbs, name="config")


@config_verbs.command("show")
def config_show(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also show where each value comes from.")
    ] = False,
    output: OutputFormat = "table",
) -> None:
    """Show every setting in effect. Secrets are redacted."""
    rows = load_settings(config, home, sets).redacted()
    check_output_format(output)

    if output != "table":
        found = [(name, _value(text), where) for name, text, where in rows]
        values = {
            name: {"value": value, "origin": where} if origin else value
            for name, value, where in found
        }
        print_data(values, output)
        return

    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows) if origin else 0
    for name, value, where in rows:
        print(f"{name:<{name_width}}  {value:<{value_width}}" + (f"  {where}" if origin else ""))


def _value(text: str) -> Any:
    """A setting as a JSON value; ``***`` for a secret."""
    return text if text == "***" else json.loads(text)


# -- shared settings -------------------------------------------------------------------------------

InEtcd = Annotated[
    bool, typer.Option("--etcd", help="Use etcd, for all daemons that set `etcd.address`.")
]


@config_verbs.command("set")
def config_set(
    settings: Annotated[list[str], typer.Argument(metavar="SECTION.KEY=VALUE...")],
    etcd: InEtcd = False,
    config: ConfigFile = None,
    home: HomeDir = None,
) -> None:
    """Share settings. A daemon applies them at its next start, unless its host overrides them."""
    given = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or "." not in name:
            raise ConfigError(
                f"{text!r} is not SECTION.KEY=VALUE", next_step="such as proxy.max_hold_s=60"
            )

        given[name.strip()] = value

    _change(
        etcd,
        config,
        home=home,
        what="set " + ", ".join(given),
        edit=lambda before, _: {**before, **check_shared(given)},
    )


@config_verbs.command("unset")
def config_unset(
    names: Annotated[list[str], typer.Argument(metavar="SECTION.KEY...")],
    etcd: InEtcd = False,
    config: ConfigFile = None,
    home: HomeDir = None,
) -> None:
    """Stop sharing settings. Daemons return to the default or to the value of their host."""

    def without(before: Mapping[str, Any], in_etcd: Collection[str]) -> dict[str, Any]:
        if absent := [name for name in names if name not in in_etcd]:
            shared = ", ".join(sorted(in_etcd)) or "none"
            raise ConfigError(f"{absent[0]} is not shared", next_step=f"shared settings: {shared}")
        return {name: value for name, value in before.items() if name not in names}

    _change(etcd, config, home=home, what="unset " + ", ".join(names), edit=without)


@config_verbs.command("history")
def config_history(
    etcd: InEtcd = False,
    config: ConfigFile = None,
    home: HomeDir = None,
    output: OutputFormat = "table",
) -> None:
    """Show the last 100 changes to the shared settings, and their authors."""
    from moorage.common.etcd import shared_settings

    check_output_format(output)
    changes = _with_etcd(etcd, config, home, shared_settings.history)
    if output != "table":
        rows = [
            {
                "number": c.number,
                "at": c.at.isoformat(),
                "by": c.by,
                "what": c.what,
                "settings": c.settings,
            }
            for c in changes
        ]
        print_data(rows, output)
        return

    for change in changes:
        print(_change_line(change))


@config_verbs.command("rollback")
def config_rollback(
    number: Annotated[
        int, typer.Argument(help="Number of the change in `moorage config history --etcd`.")
    ],
    etcd: InEtcd = False,
    config: ConfigFile = None,
    home: HomeDir = None,
) -> None:
    """Restore the shared settings to their state after change NUMBER. The rollback is itself a
    change."""
    from moorage.common.etcd.shared_settings import find_change

    wanted = _with_etcd(etcd, config, home, lambda client: find_change(client, number))
    _change(
        etcd,
        config,
        home=home,
        what=f"rollback to {number}",
        edit=lambda *_: check_shared(wanted.settings),
    )


def _change(
    etcd: bool,
    config: Path | None,
    home: Path | None,
    what: str,
    *,
    edit: Callable[[Mapping[str, Any], Collection[str]], dict[str, Any]],
) -> None:
    """Change the shared settings. ``edit`` returns the settings after the change, given the valid
    settings and the names of all settings in etcd."""
    from moorage.common.etcd import shared_settings

    async def run(client: EtcdClient) -> SettingsChange:
        before = await shared_settings.read(client)
        after = edit(_usable(before), before.values.keys())
        by = f"{getpass.getuser()}@{socket.gethostname()}"
        now = SystemClock().now()
        return await shared_settings.write(client, before, after, at=now, by=by, what=what)

    print(_change_line(_with_etcd(etcd, config, home, run)))
    typer.echo("daemons apply it at their next start", err=True)


def _usable(before: SharedSettings) -> dict[str, Any]:
    """The valid settings. Invalid ones were written by hand; the next change removes them with a
    message."""
    usable: dict[str, Any] = {}
    for name, text in before.values.items():
        try:
            usable |= check_shared({name: json.loads(text)})
        except (ValueError, ConfigError) as error:
            typer.echo(f"moorage: removing an invalid setting: {name} = {text}: {error}", err=True)
    return usable


def _change_line(change: SettingsChange) -> str:
    return f"{change.number:>5}  {change.at:%Y-%m-%d %H:%M:%SZ}  {change.by}  {change.what}"


def _with_etcd(
    etcd: bool, config: Path | None, home: Path | None, call: Callable[[EtcdClient], Awaitable[Any]]
) -> Any:
    if not etcd:
        raise ConfigError(
            "settings can be changed in etcd only",
            next_step="add --etcd; settings of this host are in its configuration file, see "
            "`moorage config "
            "show --origin`",
        )

    access = etcd_access(load_unshared(config, home).settings.etcd)
    if access is None:
        raise ConfigError(
            "etcd.address is not set", next_step="set MOORAGE_ETCD__ADDRESS=etcd://HOST:2379"
        )

    from moorage.common.etcd.client import EtcdClient

    async def run() -> Any:
        async with EtcdClient(access) as client:
            return await call(client)

    return asyncio.run(run())
