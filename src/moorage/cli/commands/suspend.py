"""``moorage suspend`` and ``moorage resume``: stop the processes of sessions, and let them
continue."""

from __future__ import annotations

from moorage.cli.app import app
from moorage.cli.commands.requeue import Names, change_each
from moorage.cli.context import Cli, command


@command(app)
def suspend(cli: Cli, names: Names) -> None:
    """Stop the processes of sessions, which keep their resources.

    Devices, memory and ports stay allocated and are charged. The time limit does not pass, and no
    idle criterion ends the session. If one of the names is unknown, nothing is suspended.

    \b
    Examples:
      moorage suspend dev
    """
    change_each(
        cli,
        names,
        lambda client, ref: client.sessions.suspend(ref),
        "suspended; it keeps its resources",
    )


@command(app)
def resume(cli: Cli, names: Names) -> None:
    """Let suspended sessions continue.

    Their time limit passes again. If one of the names is unknown, nothing is resumed.

    \b
    Examples:
      moorage resume dev
    """
    change_each(cli, names, lambda client, ref: client.sessions.resume(ref), "resumed")
