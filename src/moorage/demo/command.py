"""The ``moorage demo`` command."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from moorage.cli import app
from moorage.common.config import logging
from moorage.common.model.errors import InvalidInput
from moorage.demo.model import write_tiny_gguf
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
    model_only: Annotated[
        Path | None,
        typer.Option(
            "--model-only", metavar="FILE", help="Only write the tiny model to FILE (GGUF, 3 MB)."
        ),
    ] = None,
) -> None:
    """Start every component, serve a tiny model, and ask it a question."""
    if model_only is not None:
        write_model(model_only)
        return

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


def write_model(file: Path) -> None:
    """Write the demo's model for other uses. An existing file stays: it may be a real model."""
    if file.exists():
        raise InvalidInput(
            f"--model-only: {file} exists already",
            next_step="name another file, or remove this one first",
        )
    try:
        write_tiny_gguf(file)
    except OSError as error:
        raise InvalidInput(
            f"--model-only: cannot write {file}: {error.strerror or error}",
            next_step="name a file in a directory that exists and that you may write to",
        ) from None
    print(file)
