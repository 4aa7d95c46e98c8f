"""Mutation runner: ``python -m tests.mutations [NAME ...]``.

Applies one known fault at a time to a copy of the source and runs the tests that must notice it, with the
number of examples that CI uses. Exits with 1 if a mutation survives or no longer applies. Those whose tests
this machine cannot run are named and left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations.catalog import MUTATIONS
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]


def run(mutation: Mutation, workspace: Path) -> str:
    """Return ``killed``, ``SURVIVED``, ``STALE`` (the text to replace does not occur exactly once) or ``NOT
    RUN`` (pytest found no such tests)."""
    target = workspace / "src" / "moorage" / mutation.file
    original = target.read_text()
    if original.count(mutation.before) != 1:
        return "STALE"
    target.write_text(original.replace(mutation.before, mutation.after))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests]
        environment = os.environ | {
            "PYTHONPATH": str(workspace / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MOORAGE_SHRINK": "0",
        }
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    finally:
        target.write_text(original)
    return {0: "SURVIVED", 1: "killed"}.get(result.returncode, "NOT RUN")


def runnable(mutations: list[Mutation]) -> list[Mutation]:
    """Without those whose tests need isolation, where this machine cannot isolate kernels."""
    isolation = [m for m in mutations if m.tests[0].startswith("tests/isolation/")]
    if not isolation:
        return mutations
    command = [sys.executable, "-m", "tests.isolation.prepare"]
    prepared = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if prepared.returncode == 0:
        return mutations
    print(f"*** {len(isolation)} MUTATIONS OF THE SANDBOX DID NOT RUN: {prepared.stdout.strip()}", flush=True)
    return [m for m in mutations if m not in isolation]


def main(names: list[str]) -> int:
    chosen = runnable([m for m in MUTATIONS if not names or m.name in names])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="moorage-mutations-") as directory:
        workspace = Path(directory)
        shutil.copytree(ROOT / "src", workspace / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for mutation in chosen:
            start = time.monotonic()
            outcome = run(mutation, workspace)
            failed += outcome != "killed"
            print(f"{outcome:9} {time.monotonic() - start:5.0f} s  {mutation.name}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} mutations killed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
