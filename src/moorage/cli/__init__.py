"""Command line. ``moorage.server.commands`` adds the commands that run the components."""

from moorage.cli.app import app
from moorage.cli.commands import registered
from moorage.cli.context import Cli, command, duration_option

__all__ = ["Cli", "app", "command", "duration_option", "registered"]
