"""The command line. ``app`` is complete but for the daemons' verbs, which ``moorage.daemons`` adds."""

from moorage.cli.app import app
from moorage.cli.context import Cli, verb
from moorage.cli.verbs import registered

__all__ = ["Cli", "app", "registered", "verb"]
