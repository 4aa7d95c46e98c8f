"""Soak: chaos and fuzz from a seed, for hours (``python -m tools.soak --hours 8``).

Each round runs with the next seed: faults in real processes for half an hour, faults in a whole
installation (as root), churn on the proxy, simulations, and property tests with many more and
different examples. A part that fails is recorded with the command that repeats it, and the next one
starts. The state is in build/soak.json: a soak that was interrupted repeats that part and
continues. Exits with 1 if a part has failed since the state was created.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
STATE = ROOT / "build" / "soak.json"
SEEDS_PER_ROUND = 500
FAULT_SECONDS = 1800
CLUSTER_FAULT_SECONDS = 600
EXAMPLES = 20


@dataclass(frozen=True)
class Part:
    """A command of a round. ``environment`` holds the variables that it needs."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def shown(self) -> str:
        """The shell command that repeats it."""
        assignments = [f"{name}={value}" for name, value in self.environment.items()]
        return " ".join([*assignments, shlex.join(self.command)])


@dataclass
class State:
    """``part`` is the number of the next part, counted over all rounds from ``seed``."""

    seed: int
    part: int = 0
    failures: list[str] = field(default_factory=list)


def round_parts(seed: int) -> list[Part]:
    """The parts of the round with this seed."""
    python = sys.executable
    pytest = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "3600",
        "-n",
        "3",
    ]
    fuzzed = [
        "tests/model",
        "tests/unit",
        "tests/wire/test_api_fuzz.py",
        "tests/wire/test_link_fuzz.py",
        "tests/conformance/planes/test_fuzz.py",
    ]
    simulated = {
        "MOORAGE_SEEDS": str(SEEDS_PER_ROUND),
        "MOORAGE_FIRST_SEED": str(seed * SEEDS_PER_ROUND),
    }
    faults = ["--seed", str(seed), "--seconds"]
    parts = [Part("faults", [python, "-m", "tests.faults.run", *faults, str(FAULT_SECONDS)])]
    if os.geteuid() == 0:
        cluster = [python, "-m", "tests.cluster.run", *faults, str(CLUSTER_FAULT_SECONDS)]
        parts.append(Part("cluster-faults", cluster))

    parts += [
        Part("proxy", [python, "benchmarks/proxy.py", "--soak", "180"]),
        Part(
            "simulation",
            [python, "-m", "pytest", "-q", "-s", "tests/sim", "-k", "seeds"],
            simulated,
        ),
        Part(
            "properties",
            [*pytest, f"--hypothesis-seed={seed}", *fuzzed],
            {"MOORAGE_EXAMPLES": str(EXAMPLES)},
        ),
    ]
    return parts


def parts_from(state: State) -> Iterator[tuple[int, Part]]:
    """An endless sequence of the parts from the next one on, with the seed of their round."""
    per_round = len(round_parts(state.seed))
    number = state.part
    while True:
        seed = state.seed + number // per_round
        yield seed, round_parts(seed)[number % per_round]
        number += 1


def read_state(seed: int | None) -> State:
    if seed is not None or not STATE.exists():
        return State(seed or 0)
    return State(**json.loads(STATE.read_text()))


def write_state(state: State) -> None:
    STATE.parent.mkdir(parents=True, exist_ok=True)
    partial = STATE.with_suffix(".part")
    partial.write_text(json.dumps(asdict(state), indent=2) + "\n")
    partial.replace(STATE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.soak", description=__doc__)
    parser.add_argument(
        "--hours", type=float, default=1.0, help="no part begins after them (default: 1)"
    )
    parser.add_argument("--seed", type=int, help="start again with this seed, and forget the state")
    parser.add_argument(
        "--list", action="store_true", help="print the parts of a round, and run nothing"
    )
    arguments = parser.parse_args()
    state = read_state(arguments.seed)
    if arguments.list:
        for part in round_parts(state.seed):
            print(f"{part.name:15} {part.shown()}")
        return 0

    if os.geteuid() == 0:
        subprocess.run([sys.executable, "-m", "tests.packages", "cluster"], cwd=ROOT, check=True)

    end = time.monotonic() + arguments.hours * 3600
    for seed, part in parts_from(state):
        if time.monotonic() >= end:
            break

        start = time.monotonic()
        print(f"seed {seed}: {part.name}: {part.shown()}", flush=True)
        done = subprocess.run(
            part.command, cwd=ROOT, env=os.environ | part.environment, check=False
        )
        result = "passed" if done.returncode == 0 else "FAILED"
        print(
            f"seed {seed}: {part.name}: {result} after {time.monotonic() - start:.0f} s", flush=True
        )
        if done.returncode != 0:
            state.failures.append(part.shown())

        state.part += 1
        write_state(state)

    print(f"{state.part} parts since seed {state.seed}; {len(state.failures)} failed", flush=True)
    for line in state.failures:
        print(f"FAILED {line}")

    return 1 if state.failures else 0


if __name__ == "__main__":
    sys.exit(main())
