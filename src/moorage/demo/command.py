"""The ``moorage demo`` command."""

from __future__ import annotations

from typing import Annotated

import typer

from moorage.cli import app
from moorage.common.config import logging
from moorage.server.bootstrap import prepare
from moorage.server.commands.daemons import Config, Home, Sets, read, run
from moorage.server.process import need


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
        from moorage.demo.run import run_demo
    except ImportError as error:
        raise need("all", error) from error
    run(run_demo(loaded.settings, clock=start.clock, link_token=start.token, home=start.home, once=exit))
