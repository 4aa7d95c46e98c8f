"""``fairlead`` and ``python -m fairlead``."""

from __future__ import annotations

from fairlead import daemons, join, rehearse, replay, simulate, upkeep  # noqa: F401 - they register their commands
from fairlead.cli import app


def main() -> None:
    app()


if __name__ == "__main__":
    main()
