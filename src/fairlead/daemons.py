"""The commands that start parts of the platform, and those that look after an installation."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from fairlead.cli import app
from fairlead.cli.verbs.agent import agent as agent_verbs
from fairlead.common import collector
from fairlead.common import log as logging
from fairlead.common.clock import Clock, SystemClock
from fairlead.common.config import Loaded, link_token, load, resolve_home
from fairlead.common.errors import ConfigError, StartupError

log = structlog.get_logger("fairlead")

Config = Annotated[
    Path | None, typer.Option("--config", help="TOML file. Else $FAIRLEAD_CONFIG, else HOME/fairlead.toml.")
]
Home = Annotated[Path | None, typer.Option("--home", help="State directory. Else $FAIRLEAD_HOME.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Any setting; `fairlead config show` lists them."
    ),
]


@dataclass(frozen=True)
class Start:
    """What every part needs to start."""

    loaded: Loaded
    clock: Clock
    home: Path
    token: str


def read(
    config: Path | None, home: Path | None, sets: list[str] | None, **flags: str | Path | None
) -> Loaded:
    """Settings from everywhere; ``flags`` by ``section__key``. Raises ``ConfigError``."""
    given = {name.replace("__", ".", 1): str(value) for name, value in flags.items() if value is not None}
    for item in sets or []:
        name, equals, value = item.partition("=")
        if not equals or "." not in name:
            raise ConfigError(
                f"--set {item!r} is not SECTION.KEY=VALUE", next_step="like --set agent.id=node-7"
            )
        given[name.strip()] = value
    if home is not None:
        given["common.home"] = str(home)
    return load(config, os.environ, given)


def prepare(loaded: Loaded) -> Start:
    """Logging, state directory and link token."""
    settings = loaded.settings
    logging.setup(settings.common.log_format, settings.common.log_level)
    clock = SystemClock()
    home = resolve_home(settings)
    return Start(loaded, clock, home, link_token(settings, home, clock))


def run(main: Coroutine[Any, Any, int]) -> None:
    """Run to the end, on uvloop where it is installed; ends the command with the exit code of ``main``."""
    try:
        import uvloop
    except ImportError:
        code = asyncio.run(main)
    else:
        code = uvloop.run(main)
    raise typer.Exit(code)


def need(extra: str, error: ImportError) -> StartupError:
    """What to raise where an extra of the installation is missing."""
    return StartupError(
        f"this installation lacks what `fairlead {extra}` needs: {error.name}",
        next_step=f"pip install 'fairlead[{extra}]'",
    )


async def _serve(part: AbstractAsyncContextManager[Any], ready: Callable[[Any], None]) -> int:
    from fairlead.edges import until_signalled

    stopped = until_signalled()
    async with part as entered:
        collector.calm()
        ready(entered)
        await stopped.wait()
    return 0


@app.command(rich_help_panel="Running it")
def up(
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    dsn: Annotated[str | None, typer.Option(help="Postgres to use; none: an embedded one.")] = None,
    listen: Annotated[str | None, typer.Option(help="Address of the REST API.")] = None,
    openai_listen: Annotated[str | None, typer.Option(help="OpenAI-compatible address.")] = None,
    inventory: Annotated[str | None, typer.Option(help="auto, or fake:8xH100 to pretend.")] = None,
) -> None:
    """Everything on this machine in one process: Postgres, manager, agent, proxy. Until Ctrl-C.

    Its kernels end with an orderly stop; after a crash the next start adopts them.
    """
    loaded = read(
        config, home, sets,
        manager__dsn=dsn, manager__listen=listen, proxy__listen=openai_listen, agent__inventory=inventory,
    )  # fmt: skip
    start = prepare(loaded)
    try:
        from fairlead.allinone import AllInOne
    except ImportError as error:
        raise need("all", error) from error

    part = AllInOne(loaded.settings, clock=start.clock, link_token=start.token, home=start.home)

    def ready(entered: AllInOne) -> None:
        print(f"REST API    {entered.url}\nOpenAI API  {entered.openai_url}", flush=True)
        if entered.first_key is not None:
            print(
                f"admin key   {entered.first_key}   (shown once; kept in {start.home / 'admin-key'})",
                flush=True,
            )
        print("next: fairlead serve MODEL.gguf, fairlead ps; Ctrl-C stops everything", flush=True)

    run(_serve(part, ready))


@app.command(rich_help_panel="Running it")
def manager(
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    dsn: Annotated[str | None, typer.Option(help="Postgres to use; none: an embedded one.")] = None,
    listen: Annotated[str | None, typer.Option(help="Address of the REST API.")] = None,
    link_listen: Annotated[str | None, typer.Option(help="gRPC address for agents and proxies.")] = None,
) -> None:
    """The manager alone: sessions, scheduling, REST API."""
    loaded = read(
        config, home, sets, manager__dsn=dsn, manager__listen=listen, manager__link_listen=link_listen
    )
    start = prepare(loaded)
    try:
        from fairlead.manager import Manager
    except ImportError as error:
        raise need("manager", error) from error
    from fairlead.edges import note_connection

    part = Manager(loaded.settings.manager, clock=start.clock, link_token=start.token, home=start.home)

    def ready(entered: Manager) -> None:
        note_connection(start.home, url=f"http://{entered.api_address}")
        print(f"REST API    http://{entered.api_address}\ngRPC link   {entered.link_address}", flush=True)
        if entered.first_key is not None:
            print(
                f"admin key   {entered.first_key}   (shown once; kept in {start.home / 'admin-key'})",
                flush=True,
            )

    run(_serve(part, ready))


@agent_verbs.callback(invoke_without_command=True, no_args_is_help=False)
def agent(
    context: typer.Context,
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    id: Annotated[str | None, typer.Option(help="Unique name; none: the host name.")] = None,
    manager: Annotated[str | None, typer.Option(help="The manager's gRPC address.")] = None,
    address: Annotated[str | None, typer.Option(help="Where proxies reach this node's kernels.")] = None,
    resource_group: Annotated[str | None, typer.Option(help="The group that this node belongs to.")] = None,
    inventory: Annotated[str | None, typer.Option(help="auto, or fake:8xH100 to pretend.")] = None,
) -> None:
    """An agent alone: runs kernels on this node. They outlive it, and its next start adopts them."""
    if context.invoked_subcommand is not None:
        return
    loaded = read(
        config, home, sets,
        agent__id=id, agent__manager=manager, agent__address=address, agent__resource_group=resource_group,
        agent__inventory=inventory,
    )  # fmt: skip
    start = prepare(loaded)
    try:
        from fairlead.agent import Agent
    except ImportError as error:
        raise need("agent", error) from error
    settings = loaded.settings
    part = Agent(settings.agent, settings.common, clock=start.clock, link_token=start.token, home=start.home)
    run(_serve(part, lambda entered: print(f"agent {entered.id} → {settings.agent.manager}", flush=True)))


@app.command(rich_help_panel="Running it")
def proxy(
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    listen: Annotated[str | None, typer.Option(help="OpenAI-compatible address.")] = None,
    internal_listen: Annotated[str | None, typer.Option(help="Health and metrics.")] = None,
    manager: Annotated[str | None, typer.Option(help="The manager's gRPC address.")] = None,
) -> None:
    """A proxy alone: the OpenAI-compatible address. Serves on while the manager is away."""
    loaded = read(
        config, home, sets,
        proxy__listen=listen, proxy__internal_listen=internal_listen, proxy__manager=manager,
    )  # fmt: skip
    start = prepare(loaded)
    try:
        from fairlead.proxy import Proxy
    except ImportError as error:
        raise need("proxy", error) from error
    from fairlead.edges import note_connection

    settings = loaded.settings
    part = Proxy(settings.proxy, settings.common, clock=start.clock, link_token=start.token, home=start.home)

    def ready(entered: Proxy) -> None:
        url = "http://{}:{}/v1".format(*entered.address)
        note_connection(start.home, openai_url=url)
        internal = "http://{}:{}".format(*entered.internal_address)
        print(f"OpenAI API  {url}\ninternal    {internal}", flush=True)

    run(_serve(part, ready))


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
        from fairlead.manager.store import migrate
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
        from fairlead.manager.store import Store
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
    from fairlead.manager.postgres import EmbeddedPostgres

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


@app.command(rich_help_panel="Looking after it")
def doctor(
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
) -> None:
    """What this machine has and lacks, and how to get it. Ends with 1 where something needed is missing."""
    from fairlead.doctor import examine

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


@app.command(rich_help_panel="Running it")
def demo(
    home: Home = None,
    config: Config = None,
    sets: Sets = None,
    exit: Annotated[bool, typer.Option("--exit", help="Do it once, then stop everything.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the parts' own logs.")] = False,
) -> None:
    """The main job from end to end: starts everything, serves a tiny model, asks it something."""
    loaded = read(config, home, sets)
    start = prepare(loaded)
    if not verbose:
        logging.setup(loaded.settings.common.log_format, "warning")
    try:
        from fairlead.demo import run_demo
    except ImportError as error:
        raise need("all", error) from error
    run(run_demo(loaded.settings, clock=start.clock, link_token=start.token, home=start.home, once=exit))
