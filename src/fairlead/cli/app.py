"""The root command. Verbs register themselves on ``app``."""

from __future__ import annotations

import typer

import fairlead
from fairlead.cli.context import Cli, verb, with_shared_options
from fairlead.cli.failures import Failing

app = typer.Typer(
    name="fairlead",
    cls=Failing,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Guides work to GPUs and requests to models.",
    epilog="First steps: `fairlead demo`, then `fairlead serve MODEL`. Each verb has --help with examples.",
)


def _root(cli: Cli) -> None:
    """Guides work to GPUs and requests to models."""


app.callback()(with_shared_options(_root))


@verb(app)
def version(cli: Cli) -> None:
    """Print the version of this program."""
    if cli.json:
        cli.print_json({"version": fairlead.__version__})
    else:
        print(fairlead.__version__)
