"""``fairlead`` and ``python -m fairlead``."""

from __future__ import annotations

from fairlead import daemons  # noqa: F401 - registers its commands
from fairlead.cli import app


def main() -> None:
    app()


if __name__ == "__main__":
    main()
