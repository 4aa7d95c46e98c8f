"""Preparation for the tests of cluster parts: ``python -m tests.cluster.prepare``.

Installs missing Debian packages; starts nothing. Exits with 1 and prints the reason if they cannot be had.
"""

from __future__ import annotations

import shutil
import sys

from tests.containers.prepare import install

PACKAGES = {"pgbouncer": "pgbouncer"}


def missing_requirement() -> str:
    """Why the tests cannot run here; "" if they can."""
    absent = [name for name, program in PACKAGES.items() if not shutil.which(program)]
    return f"not installed: {', '.join(absent)}" if absent else ""


if __name__ == "__main__":
    reason = install(PACKAGES) or missing_requirement()
    print(reason)
    sys.exit(1 if reason else 0)
