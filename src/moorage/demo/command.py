"""The ``moorage demo`` command."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from moorage.cli import app
from moorage.common.config import logging
from moorage.server.bootstrap import bootstrap
from moorage.server.commands.options import (
    ConfigFile,
    HomeDir,
    Overrides,
    load_settings,
    run_and_exit,
)
from moorage.server.one_machine import with_shared_cpus
from moorage.server.process import needs_extra


@app.command()
def demo(
    home: HomeDir = None,
    config: ConfigFile = None,
    sets: Overrides = None,
    exit: Annotated[bool, typer.Option("--exit", help="Stop everything after the answer.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the components' logs.")
    ] = False,
) -> None:
    """Start every component, serve a tiny model, and ask it a question."""
    loaded = with_shared_cpus(load_settings(config, home, sets))
    boot = bootstrap(loaded, "up")
    if not verbose:
        logging.setup(loaded.settings.common.log_format, "warning", "up")

    with needs_extra("all"):
        # The model's server runs in its own process. It is imported here only so that a failure
        # comes before anything starts.
        importlib.import_module("xllamacpp")
        from moorage.demo.run import run_demo

    run_and_exit(
        run_demo(
            loaded.settings, clock=boot.clock, link_token=boot.token, home=boot.home, once=exit
        )
    )
