"""Cost of short tasks: what a task list adds to the tasks themselves.

    python benchmarks/bench_tasks.py [--tasks 10000] [--workers 2] [--hyperqueue FOLDER]

Starts `moorage up`, and works through a list of `true` in one session, each task with its exit code
and time in Postgres. Its peers run the same commands in turns: `xargs -P`, which keeps no record,
and HyperQueue's server with a worker on this machine, if FOLDER has its Python package.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_e2e import all_in_one
from measuring import machine, machine_line
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, Result
from moorage.sdk import Client

GOAL_S = 60.0
_HYPERQUEUE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=int(sys.argv[3])))
    client = cluster.client()
    began = time.monotonic()
    job = Job()
    for number in range(int(sys.argv[2])):
        job.program(["true", str(number)])
    client.wait_for_jobs([client.submit(job)])
    print("took", time.monotonic() - began)
"""


async def through_moorage(client: Client, tasks: int, workers: int) -> float:
    """Seconds from the request until the session has ended."""
    spec = SessionSpec.model_validate(
        {
            "command": ["true", "{}"],
            "resources": {"cpu": 1, "mem": "256MiB"},
            "tasks": {"lines": "\n".join(map(str, range(tasks))), "workers": workers},
        }
    )
    began = time.perf_counter()
    session = await client.sessions.create(spec)
    while session.status not in TERMINAL:
        await asyncio.sleep(0.1)
        session = await client.sessions.get(session.id)

    took = time.perf_counter() - began
    assert session.result is Result.SUCCESS, session.detail
    summary = await client.tasks.summary(session.id)
    assert summary.succeeded == tasks, summary
    return took


def through_xargs(tasks: int, workers: int) -> float:
    lines = "\n".join(map(str, range(tasks)))
    began = time.perf_counter()
    subprocess.run(
        ["xargs", "-P", str(workers), "-n", "1", "true"], input=lines, text=True, check=True
    )
    return time.perf_counter() - began


def through_hyperqueue(folder: str, tasks: int, workers: int) -> float:
    command = [sys.executable, "-c", _HYPERQUEUE, folder, str(tasks), str(workers)]
    with tempfile.TemporaryDirectory(prefix="hq-") as home:
        ran = subprocess.run(command, cwd=home, capture_output=True, text=True, check=True)
    return float(ran.stdout.rpartition("took ")[2])


async def measure(tasks: int, workers: int, hyperqueue: str | None, rounds: int) -> None:
    found: dict[str, list[float]] = {}
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        async with all_in_one(Path(folder) / "home") as platform:
            for _ in range(rounds):
                took = await through_moorage(platform.client, tasks, workers)
                found.setdefault("moorage", []).append(took)
                took = await asyncio.to_thread(through_xargs, tasks, workers)
                found.setdefault("xargs -P", []).append(took)
                if hyperqueue is not None:
                    took = await asyncio.to_thread(through_hyperqueue, hyperqueue, tasks, workers)
                    found.setdefault("hyperqueue", []).append(took)

    print(machine_line(facts))
    print(f"\n{tasks:,} tasks, {workers} workers; best and worst of {rounds}\n")
    print("| | s | s | ms a task | beyond `xargs -P`, s |\n|---|---:|---:|---:|---:|")
    base = min(found["xargs -P"])
    for name, times in found.items():
        best = min(times)
        beyond = best - base
        print(
            f"| {name} | {best:.1f} | {max(times):.1f} | {1000 * best / tasks:.2f} | {beyond:.1f} |"
        )

    print(f"\ngoal: {GOAL_S:.0f} s beyond the tasks' own time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--hyperqueue", metavar="FOLDER")
    given = parser.parse_args()
    asyncio.run(measure(given.tasks, given.workers, given.hyperqueue, given.rounds))


if __name__ == "__main__":
    main()
