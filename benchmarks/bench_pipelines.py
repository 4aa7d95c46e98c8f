"""Large pipelines: how long it takes until they are accepted, stopped and retried, and what this
costs.

    python benchmarks/bench_pipelines.py [--steps 10000] [--rounds 3]

Posts pipelines of one array, and of individually listed steps, each after the one before, to a
manager with one simulated agent and a durable Postgres; then stops them, and runs the stopped steps
again, while a client lists sessions all the time. Prints the medians of the rounds, each with a
separate manager.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from cluster import Cluster, start_cluster
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


class _Client:
    """Measurements on one manager. ``ask`` measures a request: ``s`` until the answer is read, CPU
    seconds during that time, and the longest time that another client waited for a list of sessions
    (``ps_s``)."""

    def __init__(self, cluster: Cluster, http: aiohttp.ClientSession) -> None:
        self._cluster = cluster
        self._http = http
        self._url = f"http://{cluster.host}:{cluster.port}/v1"

    async def ask(
        self, path: str, body: bytes | None, done: Callable[[Any], bool]
    ) -> dict[str, float]:
        """``all_s``: until the pipeline is ``done``."""
        before = self._cluster.cpu()
        started = time.perf_counter()
        longest = [0.0]
        lister = asyncio.create_task(self._list(longest))
        async with self._http.post(f"{self._url}{path}", data=body) as response:
            text = await response.text()

        assert response.status in (201, 202), text[:1000]
        took = time.perf_counter() - started
        view = json.loads(text)
        while not done(view):
            await asyncio.sleep(0.1)
            async with self._http.get(f"{self._url}/pipelines/{view['id']}") as response:
                view = await response.json()

        finished = time.perf_counter() - started
        lister.cancel()
        after = self._cluster.cpu()
        used = {f"{name}_cpu_s": after[name] - before[name] for name in ("manager", "postgres")}

        return {"s": took, "all_s": finished, "ps_s": longest[0]} | used

    async def _list(self, longest: list[float]) -> None:
        while True:
            started = time.perf_counter()
            async with self._http.get(f"{self._url}/sessions", params={"limit": "50"}) as response:
                await response.read()
            longest[0] = max(longest[0], time.perf_counter() - started)
            await asyncio.sleep(0.05)


def _is_stopped(view: Any) -> bool:
    return not view["counts"].get("pending") and not view["counts"].get("running")


async def _round(steps: list[dict[str, Any]], count: int) -> dict[str, dict[str, float]]:
    body = json.dumps({"name": "large", "steps": steps}).encode()
    async with start_cluster(1) as cluster:
        headers = {"Authorization": f"Bearer {cluster.key}", "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=600)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
            client = _Client(cluster, http)
            return {
                "submit": await client.ask(
                    "/pipelines", body, lambda view: len(view["steps"]) == count
                ),
                "stop": await client.ask("/pipelines/large/stop", None, _is_stopped),
                "retry": await client.ask(
                    "/pipelines/large/retry", None, lambda view: not _is_stopped(view)
                ),
            } | {"request": {"mb": len(body) / 1e6}}


async def measure(steps: int, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """The medians by shape and request."""
    found = {}
    for shape, made in SHAPES.items():
        runs = [await _round(made(steps), steps) for _ in range(rounds)]
        found[shape] = {
            what: {name: median([run[what][name] for run in runs]) for name in runs[0][what]}
            for what in runs[0]
        }
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(description="Time requests for large pipelines.")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "pipelines.json")
    options = parser.parse_args()
    about = machine()
    found = await measure(options.steps, options.rounds)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(
        json.dumps({"machine": about, "steps": options.steps, "shapes": found}, indent=1)
    )
    print(f"Goal: accepted after {GOAL_S:g} s.\n")
    print(f"| {options.steps} steps | answered after, s | done after, s | `ps` at most, s", end="")
    print(" | CPU s, manager | Postgres |")
    print("|---|---:|---:|---:|---:|---:|")

    for shape, asked in found.items():
        for what in ("submit", "stop", "retry"):
            one = asked[what]
            cells = f"{one['s']:.2f} | {one['all_s']:.2f} | {one['ps_s']:.2f} | {one['manager_cpu_s']:.2f}"
            print(f"| {shape}, {what} | {cells} | {one['postgres_cpu_s']:.2f} |")

    print(f"\n{machine_line(about)}")


if __name__ == "__main__":
    asyncio.run(main())
