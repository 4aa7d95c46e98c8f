"""Command line of the gate: ``python -m tools.gate``.

Runs every chosen step, whatever fails; runs failed cases once more, alone; finally prints one table
and one list of failures. Exits with 1 if the run is red. Logs are in build/gate, flaky cases in
build/flaky.jsonl.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.gate import report
from tools.gate.choice import Tier, choose
from tools.gate.runner import Runner, State, StepResult
from tools.gate.steps import ChosenStep, Extent, Kind, Step, read_steps
from tools.gate.verdict import Failure, Retried, judge

BUSY = 0.8
"""Average share of the capacity that is in use, because the last steps end one by one."""
CHANGE_HOURS = 4
"""Without a base and without commits ahead of origin/main, the change is everything committed in
this many hours before HEAD, because a clean clone does not know what was judged last."""


def main(root: Path, words: Sequence[str]) -> int:
    """Judge the checkout in ``root`` according to the command line. Returns the exit code."""
    arguments = parser().parse_args(words)
    began = datetime.datetime.now(datetime.UTC)
    start = time.monotonic()
    if arguments.began:
        start -= max(0.0, time.time() - arguments.began)

    git = Git(root)
    commit = git("rev-parse", "HEAD") or "unknown"
    number = int(git("rev-list", "--count", "HEAD") or 0)
    changed = changed_paths(git, arguments.base)
    try:
        steps = read_steps(root / "tests" / "steps.toml")
        if arguments.steps:
            chosen = selected(steps, arguments.steps, arguments.tier)
        else:
            budget_core_s = arguments.budget_s * arguments.capacity * BUSY
            chosen = choose(
                steps, arguments.tier, changed=changed, number=number, budget_core_s=budget_core_s
            )
    except ValueError as error:
        parser().error(str(error))

    print(f"{commit[:12]}, commit {number}, {len(changed)} changed files", flush=True)
    for step in chosen:
        print(
            f"  {step.name:20} {step.step.usual_s[step.extent]:5.0f} s  {step.reason}", flush=True
        )

    if arguments.list:
        return 0

    output = root / "build" / "gate"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    runner = Runner(root, output, python=Path(sys.executable), say=say, capacity=arguments.capacity)
    try:
        results, retried = asyncio.run(run(runner, chosen))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130

    if arguments.require_all:
        retried += [_missing(result) for result in results if result.state is State.NOT_RUN]

    record = root / "build" / "flaky.jsonl"
    quarantine = report.read_quarantine(root / "tests" / "quarantine.toml")
    verdict = judge(retried, quarantine, report.read_recorded(record))
    this_run = report.Run(commit, began, time.monotonic() - start, arguments.tier)
    report.record_flaky(record, this_run, verdict.flaky)
    report.write_json(output / "gate.json", this_run, results, verdict)
    print("\n" + report.summary(this_run, results, verdict), flush=True)

    return 1 if verdict.red else 0


def say(text: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", flush=True)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools.gate", description=__doc__)
    parser.add_argument(
        "steps", nargs="*", metavar="STEP", help="only these steps, as far as the tier goes"
    )
    parser.add_argument("--tier", type=Tier, choices=list(Tier), default=Tier.GATE)
    parser.add_argument(
        "--base", default="", help="commit since which changes count (default: origin/main)"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the chosen steps, and run nothing"
    )
    parser.add_argument(
        "--require-all",
        action="store_true",
        help="fail if a step cannot be prepared on this machine",
    )
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--capacity",
        type=float,
        default=float(cores),
        help="cores that the weights of the running steps may add up to (default: %(default)s)",
    )
    parser.add_argument(
        "--budget-s",
        type=float,
        default=780.0,
        help="seconds into which integrations whose files changed must fit (default: %(default)s)",
    )
    parser.add_argument(
        "--began",
        type=float,
        default=0.0,
        help="when the run began, in seconds since 1970: counts an installation",
    )

    return parser


async def run(runner: Runner, chosen: list[ChosenStep]) -> tuple[list[StepResult], list[Retried]]:
    results = await runner.run_all(chosen)
    retried = []
    for result in results:
        retried += await runner.retry(result)
    return results, retried


def selected(steps: tuple[Step, ...], names: list[str], tier: Tier) -> list[ChosenStep]:
    """The named steps. ``NAME-smoke`` is the smoke case of an integration."""
    chosen = []
    by_name = {step.name: step for step in steps}
    for name in names:
        step = by_name.get(name.removesuffix("-smoke"))
        if step is None:
            raise ValueError(f"{name}: there is no such step; there are {', '.join(by_name)}")

        extent = Extent.FULL if tier is Tier.FULL and step.has(Extent.FULL) else Extent.GATE
        if name.endswith("-smoke"):
            extent = Extent.SMOKE
        elif step.kind is Kind.FULL:
            extent = Extent.FULL

        if not step.has(extent):
            raise ValueError(f"{name}: steps.toml has no usual_s.{extent} for it")

        chosen.append(ChosenStep(step, extent, "named"))

    return chosen


class Git:
    """Git commands in a repository. They return their output, or "" if they fail, for example
    outside a repository."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self._root, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""


def changed_paths(git: Git, base: str) -> list[str]:
    """Paths that differ between the base and the working tree."""
    if not base:
        merge_base = git("merge-base", "HEAD", "origin/main")
        if merge_base and merge_base != git("rev-parse", "HEAD"):
            base = merge_base
        else:
            head_s = int(git("log", "-1", "--format=%ct") or 0)
            base = git("rev-list", "-1", f"--before={head_s - CHANGE_HOURS * 3600}", "HEAD")

    paths = git("diff", "--name-only", base).splitlines() if base else git("ls-files").splitlines()
    return sorted({*paths, *git("ls-files", "--others", "--exclude-standard").splitlines()})


def _missing(result: StepResult) -> Retried:
    return Retried(Failure(result.chosen.name, "", f"not run: {result.reason}"), None)


if __name__ == "__main__":
    for stop_signal in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop_signal, signal.default_int_handler)
    sys.exit(main(Path(__file__).parents[2], sys.argv[1:]))
