"""Preparation for the tests of ``deploy``: ``python -m tests.deploy.prepare [PACKAGE ...]``.

Unpacks programs of Debian trixie below ``build``: those of the packages, by default all. Exits with 1 and
prints the reason if it cannot.
"""

from __future__ import annotations

import sys

from tests.trixie import COMPOSE, KUBECTL, fetch

PROGRAMS = {"kubectl": KUBECTL, "docker-compose": COMPOSE}

if __name__ == "__main__":
    reason = fetch({name: PROGRAMS[name] for name in sys.argv[1:] or PROGRAMS})
    print(reason)
    sys.exit(1 if reason else 0)
