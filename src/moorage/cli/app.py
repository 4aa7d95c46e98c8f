"""The root command. Verbs register themselves on ``app``."""

from __future__ import annotations

import typer

import moorage
from moorage.cli.context import Cli, verb, with_shared_options
from moorage.cli.failures import Failing

app = typer.Typer(
    name="moorage",
    cls=Failing,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run models and jobs on GPUs, behind one OpenAI-compatible address.",
    epilog="First steps: `moorage demo`, then `moorage serve MODEL`. Each verb has --help with examples.",
)


def _root(cli: Cli) -> None:
    """Run models and jobs on GPUs, behind one OpenAI-compatible address."""


app.callback()(with_shared_options(_root))


@verb(app)
def version(cli: Cli) -> None:
    """Print the version of this program."""
    if cli.json:
        cli.print_json({"version": moorage.__version__})
    else:
        print(moorage.__version__)
