"""Diagnostic commands: ``moorage doctor`` and ``moorage agent doctor``."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

import moorage
from moorage.cli import app
from moorage.common.etcd.access import EtcdError, etcd_access
from moorage.common.model.errors import ConfigError
from moorage.sdk.installation.connection import find_connection
from moorage.sdk.installation.local_manager import INSECURE_LOOPBACK
from moorage.sdk.installation.saved_files import DEFAULT_URL
from moorage.server.bootstrap import Bootstrap, agents_of, bootstrap
from moorage.server.commands.daemons import agent_commands
from moorage.server.commands.options import (
    ConfigFile,
    HomeDir,
    OutputFormat,
    Overrides,
    check_output_format,
    load_settings,
    print_data,
    run_and_exit,
)
from moorage.server.doctor.checks import CheckResult, exit_code
from moorage.server.etcd import locate_managers
from moorage.server.process import needs_extra


@app.command()
def doctor(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    output: OutputFormat = "table",
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster", help="Check the installation that this machine's manager belongs to."
        ),
    ] = False,
) -> None:
    """Check which parts of Moorage can run on this machine, and how to install the missing ones.

    Each line is ok, warn (it works, with a risk), absent (optional and not installed) or missing
    (required). The exit code is 1 if something required is missing.

    With --cluster, check for single points of failure, old or untested backups, certificates,
    clocks, versions and unreachable agents. Each line is ok, warn or fail, with the next step. The
    exit code is 1 if a check fails. Run it on a manager's host, because it reads the database of
    manager.dsn.

    \b
    Examples:
      moorage doctor
      moorage doctor --cluster -o json
    """
    check_output_format(output)
    if cluster:
        run_and_exit(_check_cluster(bootstrap(load_settings(config, home, sets)), output))

    from moorage.server.doctor.host import check_host

    settings = load_settings(config, home, sets).settings
    results = asyncio.run(check_host(settings, _manager_url(settings.common.home)))
    _print_results(results, output)
    raise typer.Exit(exit_code(results))


async def _check_cluster(boot: Bootstrap, output: str) -> int:
    with needs_extra("manager"):
        from moorage.manager.store.database.connector import each_host
        from moorage.manager.store.platform.backups import cluster_facts
        from moorage.manager.store.schema.migrate import newest_revision
        from moorage.server.commands.database import database_of
        from moorage.server.doctor.certificates import check_files, configured_certificates
        from moorage.server.doctor.cluster import check_cluster
        from moorage.server.doctor.priorities import check_priorities

    dsn = boot.loaded.settings.manager.dsn
    async with database_of(boot) as url:
        facts = await cluster_facts(url)
        results = check_cluster(
            facts,
            version=moorage.__version__,
            revision=newest_revision(),
            embedded=dsn is None,
            hosts=[urlsplit(host).hostname or "" for host in each_host(url)],
        )

    results += check_priorities(facts)
    results += check_files(configured_certificates(boot.loaded.settings), facts["now"])
    results += await _check_etcd(boot, [manager["link"] for manager in facts["managers"]])
    _print_results(results, output)

    return exit_code(results)


async def _check_etcd(boot: Bootstrap, managers: list[str]) -> list[CheckResult]:
    """Check etcd. Returns no results if etcd.address is not set."""
    access = etcd_access(boot.loaded.settings.etcd)
    if access is None:
        return []

    from moorage.common.etcd.client import EtcdClient
    from moorage.common.etcd.discovery import find_managers
    from moorage.server.doctor.etcd import check_etcd

    ignored = boot.loaded.ignored
    async with EtcdClient(access) as client:
        health = await client.health()

    try:
        registered = await find_managers(access)
    except EtcdError as error:
        refused = CheckResult("fail", "etcd", error.message, error.next_step)
        return [
            *check_etcd(health, None, managers=managers, prefix=access.prefix, ignored=ignored),
            refused,
        ]

    return [
        *check_etcd(health, registered, managers=managers, prefix=access.prefix, ignored=ignored)
    ]


def _manager_url(home: Path) -> str:
    """The address of the manager that this user's commands use; empty if none is configured."""
    try:
        # No key is sent to this address.
        found = find_connection({**os.environ, "MOORAGE_HOME": str(home), INSECURE_LOOPBACK: "1"})
    except ConfigError:
        return ""
    address = found.http_url
    return "" if address == DEFAULT_URL or address.startswith("unix:") else address


@agent_commands.command("doctor")
def agent_doctor(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    output: OutputFormat = "table",
) -> None:
    """Check this node for its agent: manager, clock, disks, ports, limits, GPUs, Docker.

    Each line is ok, warn or fail, with the next step. The exit code is 1 if a check fails. With
    `agent.sites`, the checks are those of each site.
    """
    check_output_format(output)
    boot = bootstrap(load_settings(config, home, sets))
    with needs_extra("agent"):
        from moorage.server.doctor.node import check_agents

    agents = agents_of(boot.loaded, boot.home)
    located, _ = locate_managers(agents.settings, boot.loaded.settings.etcd, boot.home, boot.clock)
    agents = replace(agents, settings=located)
    results = asyncio.run(
        check_agents(
            boot.loaded.settings, agents, home=boot.home, token=boot.token, clock=boot.clock
        )
    )
    _print_results(results, output)
    raise typer.Exit(exit_code(results))


def _print_results(results: list[CheckResult], output: str) -> None:
    if output != "table":
        print_data([asdict(result) for result in results], output)
        return
    width = max(len(result.name) for result in results)
    for result in results:
        print(f"{result.status:<7} {result.name:<{width}}  {result.detail}")
        if result.next_step:
            print(f"{'':8}{'':{width}}  → {result.next_step}")
