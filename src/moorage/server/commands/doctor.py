"""Diagnostic commands: ``moorage doctor`` and ``moorage agent doctor``."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import typer

from moorage.cli import app
from moorage.cli.connection import DEFAULT_URL, find_connection
from moorage.common.model.errors import ConfigError
from moorage.server.bootstrap import agents_of, bootstrap
from moorage.server.commands.daemons import agent_commands
from moorage.server.commands.options import (
    ConfigFile,
    HomeDir,
    OutputFormat,
    Overrides,
    check_output_format,
    load_settings,
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
) -> None:
    """Check which parts of Moorage can run on this machine, and how to install the missing ones.

    Each line is ok, absent (optional and not installed) or missing (required). Exits with 1 if something
    required is missing.
    """
    from moorage.server.doctor.host import check_host

    check_output_format(output)
    settings = load_settings(config, home, sets).settings
    results = asyncio.run(check_host(settings, _manager_url(settings.common.home)))
    _print_results(results, output)
    raise typer.Exit(exit_code(results))


def _manager_url(home: Path) -> str:
    """Where this user's commands look for the manager; "" when they were not told."""
    try:
        found = find_connection({**os.environ, "MOORAGE_HOME": str(home)}).url
    except ConfigError:
        return ""
    return "" if found == DEFAULT_URL else found


@agent_commands.command("doctor")
def agent_doctor(
    config: ConfigFile = None,
    home: HomeDir = None,
    sets: Overrides = None,
    output: OutputFormat = "table",
) -> None:
    """Check this node as its agent needs it: manager, clock, disks, ports, limits, GPUs, Docker.

    Each line is ok, warn or fail, with the next step. Exits with 1 if a check fails. With `agent.sites` the
    checks are those of each site.
    """
    check_output_format(output)
    boot = bootstrap(load_settings(config, home, sets))
    with needs_extra("agent"):
        from moorage.server.doctor.node import check_agents
    agents = agents_of(boot.loaded, boot.home)
    located, _ = locate_managers(agents.settings, boot.loaded.settings.etcd, boot.home, boot.clock)
    agents = replace(agents, settings=located)
    results = asyncio.run(check_agents(boot.loaded.settings, agents, boot.home, boot.token, boot.clock))
    _print_results(results, output)
    raise typer.Exit(exit_code(results))


def _print_results(results: list[CheckResult], output: str) -> None:
    if output == "json":
        print(json.dumps([asdict(result) for result in results], indent=2))
        return
    width = max(len(result.name) for result in results)
    for result in results:
        print(f"{result.status:<7} {result.name:<{width}}  {result.detail}")
        if result.next_step:
            print(f"{'':8}{'':{width}}  → {result.next_step}")
