"""Mutation runner: ``python -m tests.mutations [NAME ...] [--jobs N]``.

Applies one known fault at a time to a copy of the source and runs the tests that must notice it, as
the gate runs them: without the cases marked ``slow``, with the gate's number of examples. Exits
with 1 if a mutation survives or no longer applies. Mutations whose tests this machine cannot run
are listed and skipped.
"""

from __future__ import annotations

import argparse
import itertools
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutations.catalog import MUTATIONS
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
MACHINE = ("tests/isolation/",)
"""Tests that change the machine (control groups, packet filters) run one at a time."""

NOT_RUN = (2, 3, 4, 5)
"""Exit codes of pytest: interrupted or not collected, internal error, wrong usage, no such tests.
Any other code except 0 means that a case failed or that the program ended the test process (70: a
supervised task ended)."""
MODIFIED_AT = itertools.count(int(time.time()))


def write_source(target: Path, text: str) -> None:
    """Write a module of a copy, with a modification time that no earlier version had, because
    Python considers bytecode current if its source's size and its time in whole seconds match."""
    target.write_text(text)
    modified_at = next(MODIFIED_AT)
    os.utime(target, (modified_at, modified_at))


def run(mutation: Mutation, workspace: Path, lane: int) -> str:
    """Return ``killed``, ``SURVIVED``, ``STALE`` (the text to replace does not occur exactly once)
    or ``NOT RUN`` (pytest found no such tests)."""
    target = workspace / "src" / "moorage" / mutation.file
    original = target.read_text()
    if original.count(mutation.before) != 1:
        return "STALE"

    write_source(target, original.replace(mutation.before, mutation.after))
    try:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow",
        ]
        environment = os.environ | {
            "PYTHONPATH": str(workspace / "src"),
            "PYTHONPYCACHEPREFIX": str(workspace / "bytecode"),
            "MOORAGE_SHRINK": "0",
            "MOORAGE_TEST_LANE": str(lane),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        result = subprocess.run(
            [*command, *mutation.tests],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        write_source(target, original)

    if result.returncode in NOT_RUN:
        return "NOT RUN"

    return "SURVIVED" if result.returncode == 0 else "killed"


def runnable(mutations: list[Mutation]) -> list[Mutation]:
    """Without mutations whose tests need isolation if this machine cannot isolate kernels."""
    isolation = [mutation for mutation in mutations if mutation.tests[0].startswith(MACHINE)]
    if not isolation:
        return mutations

    command = [sys.executable, "-m", "tests.isolation.prepare"]
    prepared = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if prepared.returncode == 0:
        return mutations

    print(
        f"*** {len(isolation)} MUTATIONS OF THE SANDBOX DID NOT RUN: {prepared.stdout.strip()}",
        flush=True,
    )
    return [mutation for mutation in mutations if mutation not in isolation]


def run_all(mutations: list[Mutation], jobs: int, directory: Path) -> int:
    """Run the mutations, ``jobs`` at a time, each job with a copy of the source. Returns how many
    were not killed."""
    lanes: queue.SimpleQueue[int] = queue.SimpleQueue()
    for lane in range(jobs):
        copy = directory / str(lane) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        lanes.put(lane)

    def one(mutation: Mutation) -> bool:
        lane = lanes.get()
        start = time.monotonic()
        try:
            outcome = run(mutation, directory / str(lane), lane)
        finally:
            lanes.put(lane)
        print(f"{outcome:9} {time.monotonic() - start:5.0f} s  {mutation.name}", flush=True)
        return outcome == "killed"

    machine = [mutation for mutation in mutations if mutation.tests[0].startswith(MACHINE)]
    others = [mutation for mutation in mutations if mutation not in machine]
    with ThreadPoolExecutor(jobs) as pool:
        killed = list(pool.map(one, others))

    killed += [one(mutation) for mutation in machine]
    return killed.count(False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these mutations")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: cores)"
    )
    arguments = parser.parse_args()
    by_name = {mutation.name: mutation for mutation in MUTATIONS}
    unknown = [name for name in arguments.names if name not in by_name]
    if unknown:
        parser.error(f"there is no mutation {unknown[0]!r}")

    names = arguments.names or list(by_name)
    chosen = runnable([by_name[name] for name in names])
    with tempfile.TemporaryDirectory(prefix="moorage-mutations-") as directory:
        failed = run_all(chosen, arguments.jobs, Path(directory))

    print(f"{len(chosen) - failed} of {len(chosen)} mutations killed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
