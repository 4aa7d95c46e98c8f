"""Entry point of ``moorage`` and ``python -m moorage``."""

from __future__ import annotations

from moorage.cli import app
from moorage.demo import command as demo
from moorage.server.commands import (
    configuration,
    daemons,
    database,
    doctor,
    join,
    scheduler,
    simulate,
)

# Importing a command module registers its commands on ``app``.
REGISTERED = (
    daemons,
    database,
    configuration,
    doctor,
    join,
    demo,
    scheduler,
    simulate,
)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
