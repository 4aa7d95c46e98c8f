"""Preparation for the tests with Celery: ``python -m tests.celery.prepare``.

Installs Debian's Redis if it is missing; starts nothing. Exits with 1 and prints the reason if it cannot.
"""

from __future__ import annotations

import shutil
import sys

from tests.containers.prepare import install

if __name__ == "__main__":
    reason = install({"redis-server": "redis-server"})
    if not reason and not shutil.which("redis-server"):
        reason = "redis-server is missing: run as root, or install Debian's package redis-server"
    print(reason)
    sys.exit(1 if reason else 0)
