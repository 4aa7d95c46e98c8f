"""Command group ``moorage scheduler``."""

from __future__ import annotations

import typer

from moorage.cli import app

scheduler = typer.Typer(no_args_is_help=True, help="Compare scheduling policies, and inspect past decisions.")
app.add_typer(scheduler, name="scheduler")
