"""Commands that run components: ``up``, ``manager``, ``agent`` and ``proxy``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from moorage.cli.app import VerbGroup, app
from moorage.common.etcd.access import etcd_access
from moorage.common.http.own_certificate import client_ca_file
from moorage.common.model.addresses import reach_of, split_address, usable_address
from moorage.common.model.errors import ConfigError
from moorage.server.agent_daemon import exec_agent
from moorage.server.bootstrap import agents_of, apply_registration, bootstrap
from moorage.server.commands.options import (
    ConfigFile,
    Flag,
    HomeDir,
    Overrides,
    load_settings,
    run_and_exit,
)
from moorage.server.etcd import (
    EtcdUse,
    Member,
    locate_managers,
    manager_member,
    proxy_member,
    with_etcd,
)
from moorage.server.one_machine import with_shared_cpus
from moorage.server.process import needs_extra, serve, write_connection_file
from moorage.server.tracing import tracer_for

if TYPE_CHECKING:
    from moorage.common.aio.clock import Clock
    from moorage.manager import Manager
    from moorage.server.proxy_workers import ProxyWorkers

Dsn = Annotated[str | None, typer.Option(help="Postgres to use. Default: an embedded one.")]
ApiListen = Annotated[str | None, typer.Option(help="Listen address of the REST API.")]
Inventory = Annotated[
    str | None,
    typer.Option(
        help="auto, auto+cpu-slots:4, auto+cpu-overcommit:4, or fake:8xH100 to simulate devices."
    ),
]
ManagerLink = Annotated[
    str | None, typer.Option(help="gRPC addresses of the managers, separated by commas.")
]


def _manager_flags(dsn: str | None, listen: str | None) -> tuple[Flag, Flag]:
    return Flag("--dsn", "manager.dsn", dsn), Flag("--listen", "manager.listen", listen)


def _print_first_key(key: str | None, home: Path) -> None:
    """Print the first key only on a terminal, because other outputs are logs, which more people can
    read."""
    if key is None:
        return
    file = home / "admin-key"
    shown = f"{key}   (shown once; kept in {file})" if sys.stdout.isatty() else f"in {file}"
    print(f"admin key   {shown}", flush=True)


@app.command()
def up(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Dsn = None,
    listen: ApiListen = None,
    openai_listen: Annotated[str | None, typer.Option(help="OpenAI-compatible address.")] = None,
    inventory: Inventory = None,
    tls: Annotated[
        bool | None,
        typer.Option(
            "--tls", help="Use TLS on every address, with a certificate of the installation's CA."
        ),
    ] = None,
    stop_kernels: Annotated[
        bool | None,
        typer.Option("--stop-kernels", help="Also stop the kernels on an orderly stop."),
    ] = None,
) -> None:
    """Run Postgres, manager, agent and proxy in one process on this machine, until Ctrl-C.

    Kernels keep running after a stop, and the next start adopts them. With --stop-kernels, an
    orderly stop ends them: batch sessions with `retries` run again after the next start, others
    have ended.
    """
    loaded = load_settings(
        config,
        home,
        sets,
        Flag("--openai-listen", "proxy.listen", openai_listen),
        *_manager_flags(dsn, listen),
        Flag("--inventory", "agent.inventory", inventory),
        Flag("--stop-kernels", "agent.stop_kernels_on_exit", stop_kernels),
        Flag("--tls", "common.tls", "ca" if tls else None),
        Flag("--tls", "common.link_tls", "on" if tls else None),
    )
    if loaded.sites:
        raise ConfigError(
            f"agent.sites has {', '.join(loaded.sites)}; the agent of `moorage up` serves only "
            "this machine",
            next_step="run `moorage agent` for the sites, with a separate MOORAGE_HOME",
        )

    loaded = with_shared_cpus(loaded)
    boot = bootstrap(loaded, "up")
    with needs_extra("all"):
        from moorage.server.all_in_one import AllInOne

    component = AllInOne(loaded.settings, clock=boot.clock, link_token=boot.token, home=boot.home)

    def on_ready(entered: AllInOne) -> None:
        print(f"Console     {entered.url}/console/\nREST API    {entered.url}", flush=True)
        print(f"OpenAI API  {entered.openai_url}", flush=True)
        print(f"processes   {entered.processes or 'none: agent.runtimes'}", flush=True)
        _print_first_key(entered.first_key, boot.home)
        print(
            "next: moorage serve MODEL.gguf, moorage ps; Ctrl-C stops it, but kernels keep running",
            flush=True,
        )

    def members(entered: AllInOne) -> list[Member]:
        scheme = urlsplit(entered.openai_url).scheme
        return [
            *_manager_member(entered.manager),
            proxy_member(entered.proxy_id, scheme, entered.proxy_address),
        ]

    use = EtcdUse(boot.home, etcd_access(loaded.settings.etcd))

    async def run() -> int:
        code = await serve(with_etcd(component, use, boot.clock, members), on_ready)
        if count := component.left_running:
            print(f"{count} kernels keep running; the next start adopts them", flush=True)
        return code

    run_and_exit(run())


@app.command()
def manager(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    dsn: Dsn = None,
    listen: ApiListen = None,
    link_listen: Annotated[
        str | None, typer.Option(help="gRPC address for agents and proxies.")
    ] = None,
) -> None:
    """Run a manager: sessions, scheduling and the REST API."""
    link = Flag("--link-listen", "manager.link_listen", link_listen)
    loaded = load_settings(config, home, sets, *_manager_flags(dsn, listen), link)
    boot = bootstrap(loaded, "manager")
    with needs_extra("manager"):
        from moorage.manager import Manager

    component = Manager(
        loaded.settings.manager,
        clock=boot.clock,
        link_token=boot.token,
        home=boot.home,
        link_tls=loaded.settings.common.link_tls,
        tls=loaded.settings.common.tls,
        tls_names=loaded.settings.common.tls_names,
        tracer=tracer_for(loaded.settings.telemetry, "manager", boot.clock),
    )

    def on_ready(entered: Manager) -> None:
        host, port = split_address(entered.api_address)
        link_host, link_port = split_address(entered.link_address)
        url = f"{entered.api_scheme}://{usable_address(host, port)}"
        write_connection_file(
            boot.home,
            url=url,
            socket=entered.api_socket,
            ca_file=client_ca_file(loaded.settings.common.tls, boot.home),
        )

        print(
            f"REST API    {url}{reach_of(host)}\n"
            f"gRPC link   {usable_address(link_host, link_port)}{reach_of(link_host)}",
            flush=True,
        )
        _print_first_key(entered.first_key, boot.home)

    use = EtcdUse(boot.home, etcd_access(loaded.settings.etcd))
    run_and_exit(serve(with_etcd(component, use, boot.clock, _manager_member), on_ready))


def _manager_member(entered: Manager) -> list[Member]:
    (host, port) = split_address(entered.api_address)
    link = entered.published_link
    return [manager_member(link, entered.api_scheme, (host, port))]


agent_commands = typer.Typer(cls=VerbGroup)
app.add_typer(
    agent_commands,
    name="agent",
    help="Run an agent on this node. `agent join` registers it, `agent doctor` checks the node.",
)


@agent_commands.callback(invoke_without_command=True, no_args_is_help=False)
def agent(
    context: typer.Context,
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    id: Annotated[
        str | None, typer.Option(help="Unique name of the agent. Default: the host name.")
    ] = None,
    manager: ManagerLink = None,
    address: Annotated[
        str | None, typer.Option(help="Address at which proxies reach kernels on this node.")
    ] = None,
    resource_group: Annotated[str | None, typer.Option(help="Resource group of this node.")] = None,
    inventory: Inventory = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            help="Runtime to offer, such as slurm; repeatable. Default: the runtimes of a node."
        ),
    ] = None,
) -> None:
    """Run an agent, which runs kernels on this node. Kernels outlive the agent, and its next start
    adopts them.

    With `agent.sites`, it runs an agent for each site of the configuration.
    """
    if context.invoked_subcommand is not None:
        return

    loaded = load_settings(
        config,
        home,
        sets,
        Flag("--id", "agent.id", id),
        Flag("--manager", "agent.manager", manager),
        Flag("--address", "agent.address", address),
        Flag("--resource-group", "agent.resource_group", resource_group),
        Flag("--inventory", "agent.inventory", inventory),
        Flag("--runtime", "agent.runtimes", json.dumps(runtime) if runtime else None),
    )
    boot = bootstrap(loaded, "agent")
    agents = agents_of(loaded, boot.home)
    located, etcd = locate_managers(agents.settings, loaded.settings.etcd, boot.home, boot.clock)

    # The agent runs for months, so it replaces this process with one that does not contain the
    # command line.
    agents = replace(agents, settings=located)
    exec_agent(
        agents,
        loaded.settings.common,
        telemetry=loaded.settings.telemetry,
        home=boot.home,
        token=boot.token,
        etcd=etcd,
    )


proxy_commands = typer.Typer(cls=VerbGroup)
app.add_typer(
    proxy_commands,
    name="proxy",
    help="Run a proxy, which serves the OpenAI-compatible address. `proxy join` registers one.",
)


@proxy_commands.callback(invoke_without_command=True, no_args_is_help=False)
def proxy(
    context: typer.Context,
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    listen: Annotated[str | None, typer.Option(help="OpenAI-compatible address.")] = None,
    internal_listen: Annotated[
        str | None, typer.Option(help="Address for health and metrics.")
    ] = None,
    manager: ManagerLink = None,
) -> None:
    """Run a proxy, which serves the OpenAI-compatible address. It keeps serving while the manager
    is down."""
    if context.invoked_subcommand is not None:
        return

    loaded = load_settings(
        config,
        home,
        sets,
        Flag("--internal-listen", "proxy.internal_listen", internal_listen),
        Flag("--listen", "proxy.listen", listen),
        Flag("--manager", "proxy.manager", manager),
    )
    boot = bootstrap(loaded, "proxy")
    with needs_extra("proxy"):
        from moorage.proxy import Proxy, Timeouts, proxy_id
        from moorage.proxy.control.worker_slot import slot_of
        from moorage.server.proxy_worker import serve_worker, worker_settings
        from moorage.server.proxy_workers import ProxyWorkers

    settings = apply_registration(loaded, boot.home, "proxy")
    slot = slot_of(os.environ)
    (section,), etcd = locate_managers((settings.proxy,), settings.etcd, boot.home, boot.clock)
    section = section.model_copy(update={"id": proxy_id(section, boot.home, boot.clock)})
    settings = settings.model_copy(update={"proxy": section})

    def show(scheme: str, address: tuple[str, int], internal: tuple[str, int]) -> None:
        url = f"{scheme}://{usable_address(*address)}/v1"
        write_connection_file(boot.home, openai_url=url)
        print(
            f"OpenAI API  {url}{reach_of(address[0])}\n"
            f"internal    http://{usable_address(*internal)}{reach_of(internal[0])}",
            flush=True,
        )

    if settings.proxy.workers and slot is None:
        has_tls = settings.proxy.tls_certificate is not None or settings.common.tls == "ca"
        scheme = "https" if has_tls else "http"
        me = proxy_member(section.id or "", scheme, split_address(settings.proxy.listen))
        workers = ProxyWorkers(settings.proxy)
        run_and_exit(
            _run_workers(workers, partial(show, scheme), etcd=etcd, me=me, clock=boot.clock)
        )

    component = Proxy(
        settings.proxy if slot is None else worker_settings(settings.proxy),
        settings.common,
        clock=boot.clock,
        link_token=boot.token,
        home=boot.home,
        timeouts=None if slot is None else Timeouts(shutdown_s=settings.proxy.drain_timeout_s),
        slot=slot,
        tracer=tracer_for(settings.telemetry, "proxy", boot.clock, instance=section.id or ""),
    )
    if slot is not None:
        run_and_exit(serve_worker(component, slot))

    def on_ready(entered: Proxy) -> None:
        show(entered.scheme, entered.address, entered.internal_address)

    def members(entered: Proxy) -> list[Member]:
        return [proxy_member(entered.id, entered.scheme, entered.address)]

    run_and_exit(
        serve(
            with_etcd(
                component, etcd, clock=boot.clock, members=members, dialers=lambda it: [it.dialer]
            ),
            on_ready,
        )
    )


async def _run_workers(
    workers: ProxyWorkers, show: Callable[..., None], etcd: EtcdUse, me: Member, *, clock: Clock
) -> int:
    """Run a proxy with workers, which find their managers themselves. Together they are one
    proxy."""
    async with with_etcd(nullcontext(workers), replace(etcd, discover=None), clock, lambda _: [me]):
        return await workers.run(show)
