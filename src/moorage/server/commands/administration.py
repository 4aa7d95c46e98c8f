"""The commands that look after an installation: ``db``, ``config``, ``doctor``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from moorage.cli import app
from moorage.cli.verbs.agent import agent as agent_verbs
from moorage.common.model.errors import ConfigError
from moorage.server.bootstrap import Start, as_joined, prepare
from moorage.server.commands.daemons import Config, Home, Sets, read, run
from moorage.server.process import need

db = typer.Typer(help="The database.", no_args_is_help=True)
app.add_typer(db, name="db", rich_help_panel="Looking after it")


@db.command("upgrade")
def db_upgrade(
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    dsn: Annotated[str | None, typer.Option(help="Postgres to upgrade; none: the embedded one.")] = None,
) -> None:
    """Bring the schema up to date (the manager does it at start, too)."""
    start = prepare(read(config, home, sets, manager__dsn=dsn))
    try:
        from moorage.manager.store import migrate
    except ImportError as error:
        raise need("manager", error) from error

    async def main() -> int:
        async with _database(start) as found:
            await migrate(found)
        print("the schema is up to date")
        return 0

    run(main())


@db.command("check")
def db_check(
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    dsn: Annotated[str | None, typer.Option(help="Postgres to check; none: the embedded one.")] = None,
    mend: Annotated[bool, typer.Option("--mend", help="Put right what follows from the rest.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
) -> None:
    """Recount everything and compare. Ends with 1 where something is left that should not be."""
    if output not in ("table", "json"):
        raise ConfigError(f"--output {output!r} is not allowed", next_step="use table or json")
    start = prepare(read(config, home, sets, manager__dsn=dsn))
    try:
        from moorage.manager.store import Store
    except ImportError as error:
        raise need("manager", error) from error

    async def main() -> int:
        async with _database(start) as found, Store(found, start.clock) as store:
            drifts = await (store.mend() if mend else store.check())
        return _show_drifts([asdict(drift) for drift in drifts], output)

    run(main())


def _show_drifts(drifts: list[dict[str, Any]], output: str) -> int:
    left = sum(not drift["mended"] for drift in drifts)
    if output == "json":
        print(json.dumps(drifts, indent=2))
        return 1 if left else 0
    for drift in drifts:
        mark = "mended" if drift["mended"] else "drift"
        print(f"{mark:<7} {drift['check']:<9} {drift['subject'].strip()}: {drift['detail']}")
    for check, means in sorted({(drift["check"], drift["means"]) for drift in drifts}):
        print(f"{'':<7} {check:<9} = {means}")
    print(f"{len(drifts)} found, {len(drifts) - left} mended" if drifts else "no drift: every check holds")
    return 1 if left else 0


@asynccontextmanager
async def _database(start: Start) -> AsyncIterator[str]:
    """The DSN that is set, else of the embedded Postgres, which runs meanwhile."""
    from moorage.manager.postgres import EmbeddedPostgres

    settings = start.loaded.settings.manager
    if settings.dsn is not None:
        yield settings.dsn
        return
    embedded = EmbeddedPostgres(start.home / "postgres", bin_dir=settings.postgres_bin, clock=start.clock)
    async with embedded:
        yield embedded.dsn


config_app = typer.Typer(help="Settings.", no_args_is_help=True)
app.add_typer(config_app, name="config", rich_help_panel="Looking after it")


@config_app.command("show")
def config_show(
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also say where each value comes from.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
) -> None:
    """Every setting that is in force; secrets are hidden."""
    rows = read(config, home, sets).redacted()
    if output == "json":
        shown = {name: {"value": value, "origin": where} if origin else value for name, value, where in rows}
        print(json.dumps(shown, indent=2))
        return
    if output != "table":
        raise ConfigError(f"--output {output!r} is not allowed", next_step="use table or json")
    width = max(len(name) for name, _, _ in rows)
    values = max(len(value) for _, value, _ in rows) if origin else 0
    for name, value, where in rows:
        print(f"{name:<{width}}  {value:<{values}}" + (f"  {where}" if origin else ""))


@agent_verbs.command("doctor")
def agent_doctor(
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
) -> None:
    """Look at this node as its agent will need it: manager, clock, disks, ports, limits, GPUs, Docker.

    Each line is ok, warn or fail, with what to do. Ends with 1 where something fails.
    """
    if output not in ("table", "json"):
        raise ConfigError(f"--output {output!r} is not allowed", next_step="use table or json")
    start = prepare(read(config, home, sets))
    try:
        from moorage.server.doctor.checks import verdict
        from moorage.server.doctor.node import examine_node
    except ImportError as error:
        raise need("agent", error) from error
    settings = as_joined(start.loaded, start.home, "agent")
    lines = asyncio.run(examine_node(settings, start.home, start.token, start.clock))
    if output == "json":
        print(json.dumps([asdict(line) for line in lines], indent=2))
    else:
        width = max(len(line.name) for line in lines)
        for line in lines:
            print(f"{line.mark:<5} {line.name:<{width}}  {line.found}")
            if line.advice:
                print(f"{'':6}{'':{width}}  → {line.advice}")
    raise typer.Exit(verdict(lines))


@app.command(rich_help_panel="Looking after it")
def doctor(
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
) -> None:
    """What this machine has and lacks, and how to get it. Ends with 1 where something needed is missing."""
    from moorage.server.doctor.host import examine

    findings = asyncio.run(examine(read(config, home, sets).settings))
    if output == "json":
        print(json.dumps([f.__dict__ for f in findings], indent=2))
    else:
        width = max(len(f.name) for f in findings)
        for f in findings:
            print(
                f"{f.mark:<7} {f.name:<{width}}  {f.found}"
                + (f"\n{'':8}{'':{width}}  → {f.advice}" if f.advice else "")
            )
    raise typer.Exit(1 if any(f.mark == "missing" for f in findings) else 0)
