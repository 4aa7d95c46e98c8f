"""Benchmark of waits: how long after a session runs its creator sees it, and how many requests that
takes.

    python benchmarks/waits.py [--rounds 30] [--start 5s..5s] [--waiters 1]

Starts a platform with a simulated agent, whose kernels take the given time to start, and stops it
at the end. "poll" reads the session and its history every 200 ms, as the command line once did;
"events" is its current behavior.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from cluster import Cluster, start_cluster
from measuring import machine, machine_line
from moorage.cli.wait import until_session
from moorage.common.aio.clock import SystemClock
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.sdk import Client

if TYPE_CHECKING:
    from moorage.common.views.resources import SessionView

POLL_S = 0.2
Wait = Callable[["CountingClient", "SessionView"], Awaitable["SessionView"]]


class CountingClient(Client):
    """``requests``: the number of requests sent so far."""

    requests = 0

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        self.requests += 1
        return await super().call(*args, **kwargs)

    async def stream(self, *args: Any, **kwargs: Any) -> Any:
        self.requests += 1
        return await super().stream(*args, **kwargs)


class Unseen:
    """Progress that is not shown."""

    def restart(self) -> None:
        pass

    def show(self, *_: object) -> None:
        pass


def runs(view: SessionView) -> bool:
    return view.status is Status.RUNNING


async def poll(client: CountingClient, made: SessionView) -> SessionView:
    while True:
        view = await client.sessions.get(made.id)
        await client.sessions.history(made.id)
        if runs(view):
            return view
        await asyncio.sleep(POLL_S)


async def events(client: CountingClient, made: SessionView) -> SessionView:
    return await until_session(client, made, runs, clock=SystemClock(), progress=Unseen())  # type: ignore[arg-type]


async def one(cluster: Cluster, name: str, wait: Wait) -> tuple[float, int]:
    """Milliseconds from the status in Postgres to the return of the wait, and requests of the
    wait."""
    spec = SessionSpec(
        name=name, type="batch", command=["x"], runtime="fake", resources={"cpu": 0.001}
    )
    async with CountingClient(f"http://{cluster.host}:{cluster.port}", cluster.key) as client:
        made = await client.sessions.create(spec)
        before = client.requests
        view = await wait(client, made)
        seen_at = time.time()
        took = (seen_at - view.status_since.timestamp()) * 1000, client.requests - before
        await client.sessions.stop(made.id)

    return took


async def measure(given: argparse.Namespace) -> None:
    found = machine()
    print(machine_line(found), flush=True)
    values: dict[str, dict[str, float]] = {}
    async with start_cluster(1, "--start-time", given.start, "--forever") as cluster:
        for name, wait in (("poll", poll), ("events", events)):
            cpu = cluster.cpu()["manager"]
            took = []
            for number in range(given.rounds):
                took += await asyncio.gather(
                    *(one(cluster, f"{name}-{number}-{n}", wait) for n in range(given.waiters))
                )
                await asyncio.sleep(0.1)

            delays = [delay for delay, _ in took]
            requests = [count for _, count in took]
            values[name] = {
                "delay_ms_p50": statistics.median(delays), "delay_ms_max": max(delays),
                "requests": statistics.mean(requests),
                "manager_cpu_ms": (cluster.cpu()["manager"] - cpu) / len(took) * 1000,
            }  # fmt: skip

    for name, found_values in values.items():
        print(name, *(f"{key} {value:.1f}" for key, value in found_values.items()), sep="  ")

    print(json.dumps({"machine": found, "start": given.start, "waiters": given.waiters, **values}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--start", default="5s..5s", help="time until a kernel runs, as of moorage simulate"
    )
    parser.add_argument(
        "--waiters", type=int, default=1, help="sessions that start and are awaited at once"
    )
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
