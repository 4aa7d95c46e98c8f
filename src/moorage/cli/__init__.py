"""Command line. ``moorage.server.commands`` adds the commands that run the components."""

from moorage.cli.app import add_commands, app
from moorage.cli.commands import COMMANDS
from moorage.cli.context import Cli, command, duration_option

add_commands(COMMANDS)

__all__ = ["Cli", "add_commands", "app", "command", "duration_option"]
