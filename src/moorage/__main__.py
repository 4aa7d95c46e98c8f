"""Entry point of ``moorage`` and ``python -m moorage``."""

from __future__ import annotations

from moorage.cli import add_commands, app
from moorage.server.commands import COMMANDS

add_commands(COMMANDS)
add_commands(
    {"demo": ("Start every component, serve a tiny model, and ask it a question.", "moorage.demo.command")}
)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
