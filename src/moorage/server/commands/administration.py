"""Commands that administer an installation: ``moorage db`` and ``moorage config``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from moorage.cli import app
from moorage.server.bootstrap import Bootstrap, bootstrap
from moorage.server.commands.options import (
    ConfigFile,
    HomeDir,
    OutputFormat,
    Overrides,
    check_output_format,
    load_settings,
    run_and_exit,
)
from moorage.server.process import missing_extra

db = typer.Typer(help="Upgrade and check the database.", no_args_is_help=True)
app.add_typer(db, name="db")


@db.command("upgrade")
def db_upgrade(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Annotated[str | None, typer.Option(help="Postgres to upgrade. Default: the embedded one.")] = None,
) -> None:
    """Upgrade the schema to this version. The manager does this at start, too."""
    boot = bootstrap(load_settings(config, home, sets, manager__dsn=dsn))
    try:
        from moorage.manager.store import migrate
    except ImportError as error:
        raise missing_extra("manager", error) from error

    async def main() -> int:
        async with _database(boot) as url:
            await migrate(url)
        print("the schema is up to date")
        return 0

    run_and_exit(main())


@db.command("check")
def db_check(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Annotated[str | None, typer.Option(help="Postgres to check. Default: the embedded one.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Recompute derived rows that drifted.")] = False,
    output: OutputFormat = "table",
) -> None:
    """Run the integrity checks. Exits with 1 if drift remains."""
    check_output_format(output)
    boot = bootstrap(load_settings(config, home, sets, manager__dsn=dsn))
    try:
        from moorage.manager.store import Store
    except ImportError as error:
        raise missing_extra("manager", error) from error

    async def main() -> int:
        async with _database(boot) as url, Store(url, boot.clock) as store:
            drifts = await (store.integrity.repair() if repair else store.integrity.check())
        return _print_drifts([asdict(drift) for drift in drifts], output)

    run_and_exit(main())


def _print_drifts(drifts: list[dict[str, Any]], output: str) -> int:
    """Print the drifts and return the exit code."""
    remaining = sum(not drift["repaired"] for drift in drifts)
    if output == "json":
        print(json.dumps(drifts, indent=2))
        return 1 if remaining else 0
    for drift in drifts:
        state = "repaired" if drift["repaired"] else "drift"
        print(f"{state:<8} {drift['check']:<9} {drift['subject'].strip()}: {drift['detail']}")
    for check, meaning in sorted({(drift["check"], drift["means"]) for drift in drifts}):
        print(f"{'':<8} {check:<9} = {meaning}")
    if drifts:
        print(f"{len(drifts)} found, {len(drifts) - remaining} repaired")
    else:
        print("no drift: every check passes")
    return 1 if remaining else 0


@asynccontextmanager
async def _database(boot: Bootstrap) -> AsyncIterator[str]:
    """The configured DSN, or the DSN of the embedded Postgres, which runs while the context is open."""
    from moorage.manager.postgres import EmbeddedPostgres

    settings = boot.loaded.settings.manager
    if settings.dsn is not None:
        yield settings.dsn
        return
    embedded = EmbeddedPostgres(boot.home / "postgres", bin_dir=settings.postgres_bin, clock=boot.clock)
    async with embedded:
        yield embedded.dsn


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
        values = {name: {"value": value, "origin": where} if origin else value for name, value, where in rows}
        print(json.dumps(values, indent=2))
        return
    name_width = max(len(name) for name, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows) if origin else 0
    for name, value, where in rows:
        print(f"{name:<{name_width}}  {value:<{value_width}}" + (f"  {where}" if origin else ""))
