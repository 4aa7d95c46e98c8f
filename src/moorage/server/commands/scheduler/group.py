"""Command group ``moorage scheduler``."""

from __future__ import annotations

import typer

from moorage.cli.app import VerbGroup, app

scheduler = typer.Typer(
    cls=VerbGroup,
    no_args_is_help=True,
    help="Compare scheduling policies, and inspect past decisions.",
)
app.add_typer(scheduler, name="scheduler")
