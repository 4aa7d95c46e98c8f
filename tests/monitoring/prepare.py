"""Preparation for the tests with Prometheus: ``python -m tests.monitoring.prepare``.

Installs Debian's package if it is missing; starts nothing. Exits with 1 and prints the reason if it cannot.
"""

from __future__ import annotations

import shutil
import sys

from tests.containers.prepare import install

PROGRAMS = ("prometheus", "promtool")

if __name__ == "__main__":
    reason = install({"prometheus": "promtool"})
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if not reason and missing:
        reason = f"{' and '.join(missing)} missing: run as root, or install Debian's package prometheus"
    print(reason)
    sys.exit(1 if reason else 0)
