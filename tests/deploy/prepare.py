"""Preparation for the tests of ``deploy``: ``python -m tests.deploy.prepare``.

Unpacks programs of Debian trixie below ``build``. Exits with 1 and prints the reason if it cannot.
"""

from __future__ import annotations

import sys

from tests.trixie import COMPOSE, KUBECTL, fetch

if __name__ == "__main__":
    reason = fetch({"kubectl": KUBECTL, "docker-compose": COMPOSE})
    print(reason)
    sys.exit(1 if reason else 0)
