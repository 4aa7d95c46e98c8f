"""Preparation for the tests with Slurm: ``python -m tests.hpc.prepare``.

Installs missing Debian packages; starts nothing. Exits with 1 and prints the reason if this machine
cannot run a private Slurm.
"""

from __future__ import annotations

import os
import shutil
import sys

from tests.containers.prepare import install

PACKAGES = {"slurm-wlm": "slurmctld", "munge": "munged"}


def missing_requirement() -> str:
    """Why a private Slurm cannot be started here, or "" if it can."""
    if os.geteuid() != 0:
        return "it takes root: slurmd starts jobs as their user"
    absent = [name for name, program in PACKAGES.items() if not shutil.which(program)]
    return f"not installed: {', '.join(absent)}" if absent else ""


if __name__ == "__main__":
    reason = install(PACKAGES) or missing_requirement()
    print(reason)
    sys.exit(1 if reason else 0)
