"""Command line. The daemon commands are registered by ``moorage.server.commands``."""

from moorage.cli.app import app
from moorage.cli.context import Cli, verb
from moorage.cli.verbs import registered

__all__ = ["Cli", "app", "registered", "verb"]
