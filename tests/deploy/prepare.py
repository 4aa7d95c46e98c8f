"""Preparation for the tests of ``deploy`` and ``containers``: ``python -m tests.deploy.prepare
[PACKAGE ...]``.

Unpacks programs from Debian trixie below ``build``: those in the given packages, by default those
for ``deploy``. Exits with 1 and prints the reason if it fails.
"""

from __future__ import annotations

import sys

from tests.trixie import COMPOSE, CONTAINERD, DOCKERD, KUBECTL, fetch

PROGRAMS = {
    "kubectl": KUBECTL,
    "docker-compose": COMPOSE,
    "docker.io": DOCKERD,
    "containerd": CONTAINERD,
}

# The packages for this folder; the container tests name theirs.
OURS = ("kubectl", "docker-compose")

if __name__ == "__main__":
    reason = fetch({name: PROGRAMS[name] for name in sys.argv[1:] or OURS})
    print(reason)
    sys.exit(1 if reason else 0)
