"""The command line. ``app`` is complete but for the daemons' verbs, which ``fairlead.daemons`` adds."""

from fairlead.cli.app import app
from fairlead.cli.context import Cli, verb
from fairlead.cli.verbs import registered

__all__ = ["Cli", "app", "registered", "verb"]
