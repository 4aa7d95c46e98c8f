"""``moorage`` and ``python -m moorage``."""

from __future__ import annotations

from moorage import daemons, join, rehearse, replay, simulate, upkeep  # noqa: F401 - they register their commands
from moorage.cli import app


def main() -> None:
    app()


if __name__ == "__main__":
    main()
