"""Submissions of large pipelines: how long until they are accepted, and what they cost.

    python benchmarks/bench_pipelines.py [--steps 10000] [--rounds 3]

Posts pipelines of one array, and of steps that are spelled out, each after the one before, to a manager with
one simulated agent and a durable Postgres. Prints the medians of the rounds, each on a manager of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import aiohttp

from cluster import start_cluster
from measuring import machine, machine_line, median

HERE = Path(__file__).parent
SPEC = {"command": ["true"], "resources": {"cpu": 1}}
GOAL_S = 2.0


def array(number: int) -> list[dict[str, Any]]:
    return [{"name": "part", "array": f"0-{number - 1}%100", "spec": SPEC}]


def spelled_out(number: int) -> list[dict[str, Any]]:
    after = [[]] + [[f"s{n}"] for n in range(number - 1)]
    return [{"name": f"s{n}", "after": after[n], "spec": SPEC} for n in range(number)]


SHAPES = {"one array": array, "spelled out": spelled_out}


async def _submit(steps: list[dict[str, Any]], count: int) -> dict[str, float]:
    """Seconds until the answer is read, CPU seconds meanwhile, and MB of the request."""
    body = json.dumps({"name": "large", "steps": steps}).encode()
    async with start_cluster(1) as cluster:
        headers = {"Authorization": f"Bearer {cluster.key}", "Content-Type": "application/json"}
        url = f"http://{cluster.host}:{cluster.port}/v1/pipelines"
        async with aiohttp.ClientSession(headers=headers) as http:
            before, started = cluster.cpu(), time.perf_counter()
            async with http.post(url, data=body) as response:
                text = await response.text()
            took, after = time.perf_counter() - started, cluster.cpu()
    assert response.status == 201, text[:1000]
    assert len(json.loads(text)["steps"]) == count
    used = {f"{name}_cpu_s": after[name] - before[name] for name in ("manager", "postgres")}
    return {"s": took, "mb": len(body) / 1e6} | used


async def measure(steps: int, rounds: int) -> dict[str, dict[str, float]]:
    found = {}
    for shape, made in SHAPES.items():
        runs = [await _submit(made(steps), steps) for _ in range(rounds)]
        found[shape] = {name: median([run[name] for run in runs]) for name in runs[0]}
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(description="Time the submission of large pipelines.")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "pipelines.json")
    options = parser.parse_args()
    about = machine()
    found = await measure(options.steps, options.rounds)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": about, "steps": options.steps, "shapes": found}, indent=1))
    print(f"| {options.steps} steps | request, MB | accepted after, s | goal | CPU s, manager | Postgres |")
    print("|---|---:|---:|---:|---:|---:|")
    for shape, one in found.items():
        cells = f"{one['mb']:.1f} | {one['s']:.2f} | {GOAL_S:g} | {one['manager_cpu_s']:.2f}"
        print(f"| {shape} | {cells} | {one['postgres_cpu_s']:.2f} |")
    print(f"\n{machine_line(about)}")


if __name__ == "__main__":
    asyncio.run(main())
