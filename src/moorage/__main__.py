"""Entry point of ``moorage`` and ``python -m moorage``."""

from __future__ import annotations

import gc
import os

from moorage.cli import add_commands, app, standard_streams
from moorage.common.aio.gc import YOUNG_THRESHOLD

# The line in `moorage --help`, and the modules. A test compares the lines with the help of the
# commands.
COMMANDS = {
    "agent": (
        "Run an agent on this node.",
        "moorage.server.commands.daemons",
        "moorage.server.commands.doctor",
        "moorage.server.commands.engines",
        "moorage.server.commands.join",
    ),
    "config": (
        "Show the settings, and change those that daemons share in etcd.",
        "moorage.server.commands.configuration",
    ),
    "db": ("Back up, restore, upgrade and check the database.", "moorage.server.commands.database"),
    "demo": (
        "Start every component, serve a tiny model, and ask it a question.",
        "moorage.demo.command",
    ),
    "doctor": (
        "Check which parts of Moorage can run on this machine, and how to install the missing "
        "ones.",
        "moorage.server.commands.doctor",
    ),
    "manager": (
        "Run a manager: sessions, scheduling and the REST API.",
        "moorage.server.commands.daemons",
    ),
    "proxy": (
        "Run a proxy, which serves the OpenAI-compatible address.",
        "moorage.server.commands.daemons",
        "moorage.server.commands.join",
    ),
    "scheduler": (
        "Compare scheduling policies, and inspect past decisions.",
        "moorage.server.commands.scheduler",
    ),
    "simulate": (
        "Run simulated agents with real links to the manager and scripted kernels, for tests and "
        "benchmarks.",
        "moorage.server.commands.simulate",
    ),
    "up": (
        "Run Postgres, manager, agent and proxy in one process on this machine, until Ctrl-C.",
        "moorage.server.commands.daemons",
    ),
    "upgrade": (
        "Upgrade an installation, one part after another.",
        "moorage.server.commands.upgrade",
    ),
}
add_commands(COMMANDS)


def main() -> None:
    # Most of a short command is imports, which leave no cycles behind.
    gc.set_threshold(YOUNG_THRESHOLD)
    standard_streams.replace()
    # A uid without a passwd entry has no home. Containers give it /, and so does this.
    if os.path.expanduser("~") == "~":
        os.environ["HOME"] = "/"
    app()


if __name__ == "__main__":
    main()
