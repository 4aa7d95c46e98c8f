"""Commands that start the components. ``administration`` has those that look after an installation."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from moorage.cli import app
from moorage.cli.verbs.agent import agent as agent_verbs
from moorage.common.config.loader import Loaded, load
from moorage.common.model.addresses import reached_at
from moorage.common.model.errors import ConfigError
from moorage.server import agent_daemon
from moorage.server import process as edges
from moorage.server.bootstrap import as_joined, prepare
from moorage.server.process import need, serve

Config = Annotated[
    Path | None, typer.Option("--config", help="TOML file. Else $MOORAGE_CONFIG, else HOME/moorage.toml.")
]
Home = Annotated[Path | None, typer.Option("--home", help="State directory. Else $MOORAGE_HOME.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting; `moorage config show` lists them."),
]


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


def run(main: Coroutine[Any, Any, int]) -> None:
    """Run to the end; ends the command with the exit code of ``main``."""
    raise typer.Exit(edges.run(main))


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
        from moorage.server.all_in_one import AllInOne
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
        print("next: moorage serve MODEL.gguf, moorage ps; Ctrl-C stops everything", flush=True)

    run(serve(part, ready))


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
        from moorage.manager import Manager
    except ImportError as error:
        raise need("manager", error) from error
    from moorage.server.process import note_connection

    part = Manager(
        loaded.settings.manager,
        clock=start.clock,
        link_token=start.token,
        home=start.home,
        link_tls=loaded.settings.common.link_tls,
    )

    def ready(entered: Manager) -> None:
        note_connection(start.home, url=f"http://{reached_at(entered.api_address)}")
        print(f"REST API    http://{entered.api_address}\ngRPC link   {entered.link_address}", flush=True)
        if entered.first_key is not None:
            print(
                f"admin key   {entered.first_key}   (shown once; kept in {start.home / 'admin-key'})",
                flush=True,
            )

    run(serve(part, ready))


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
    settings = as_joined(loaded, start.home, "agent")
    # It becomes a process without a command line: a node pays for what is in its agent for months.
    agent_daemon.become(settings, start.home, start.token)


proxy_verbs = typer.Typer()
app.add_typer(
    proxy_verbs,
    name="proxy",
    help="A proxy alone: the OpenAI-compatible address. With a verb: let it join.",
    rich_help_panel="Running it",
)


@proxy_verbs.callback(invoke_without_command=True, no_args_is_help=False)
def proxy(
    context: typer.Context,
    config: Config = None,
    home: Home = None,
    sets: Sets = None,
    listen: Annotated[str | None, typer.Option(help="OpenAI-compatible address.")] = None,
    internal_listen: Annotated[str | None, typer.Option(help="Health and metrics.")] = None,
    manager: Annotated[str | None, typer.Option(help="The manager's gRPC address.")] = None,
) -> None:
    """A proxy alone: the OpenAI-compatible address. Serves on while the manager is away."""
    if context.invoked_subcommand is not None:
        return
    loaded = read(
        config, home, sets,
        proxy__listen=listen, proxy__internal_listen=internal_listen, proxy__manager=manager,
    )  # fmt: skip
    start = prepare(loaded)
    try:
        from moorage.proxy import Proxy
    except ImportError as error:
        raise need("proxy", error) from error
    from moorage.server.process import note_connection

    settings = as_joined(loaded, start.home, "proxy")
    part = Proxy(settings.proxy, settings.common, clock=start.clock, link_token=start.token, home=start.home)

    def ready(entered: Proxy) -> None:
        url = "http://{}:{}/v1".format(*entered.address)
        note_connection(start.home, openai_url=url)
        internal = "http://{}:{}".format(*entered.internal_address)
        print(f"OpenAI API  {url}\ninternal    {internal}", flush=True)

    run(serve(part, ready))
