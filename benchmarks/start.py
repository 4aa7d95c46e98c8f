"""Start latency of kernels: from create to RUNNING, compared with a baseline measured in the same
rounds.

    python benchmarks/start.py [--rounds 20] [--kernels 50] [--runtimes process docker]

Postgres (durable), a manager and an agent run as separate processes. The Docker Engine is the
private engine of tests/containers (root on Linux). The baseline for ``docker`` is creating and
starting the same image with the same options through Docker's SDK, over an open connection; for
``process`` it is ``posix_spawn`` of the same program. Each round measures the baseline and Moorage
in alternating order. Latencies of Moorage are from the request to the row RUNNING in the session
history.

An engine takes about a second per container, with a variance larger than the overhead of Moorage.
So both use a recording proxy that measures the engine's own time for create and start. The overhead
is the difference of the remaining times; the times of the engine, which must be equal for both, are
printed as well.

Then 16 concurrent starts, compared with 16 threads of the SDK, and the memory and CPU of the agent
while ``--kernels`` kernels are idle. All measurements are stored in
``benchmarks/results/start.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import uvloop

from cluster import Cluster, process, start_cluster
from engine_recorder import EngineRecorder, recording
from measuring import cpu_s, machine, machine_line, pss_mb, rss_mb
from moorage.agent.runtimes import Launch
from moorage.agent.runtimes.docker import ContainerRules
from moorage.agent.runtimes.docker.container_config import container_config, host_config
from moorage.agent.runtimes.docker.networks import SHARED
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from start_table import CONCURRENCY, STAGES, StartResult, tables

if TYPE_CHECKING:
    from tests.containers.engine import PrivateEngine

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # for tests.containers
SETTLE_S = 0.5
MEM = 32 << 20
COMMANDS = {
    "process": ["sleep", "3600"],
    "docker": ["python3", "-S", "-c", "import time; time.sleep(3600)"],
}
_STARTING = ("POST /containers/create", "POST /containers/ID/start")
Baseline = Callable[[int], Awaitable[tuple[float, float]]]
"""Starts a number of kernels without Moorage. Returns the time of the start (unix seconds) and the
duration in seconds."""


@dataclass
class Node:
    """An agent, its manager and its engine. ``socket``: the socket of the recording proxy in front
    of the engine."""

    cluster: Cluster
    db: asyncpg.Connection
    pid: int
    engine: PrivateEngine
    socket: Path
    recorder: EngineRecorder

    async def create(
        self, runtime: str, count: int, result: StartResult | None = None
    ) -> tuple[list[str], float]:
        """Create sessions concurrently. Returns their ids and the seconds until the last one is
        RUNNING."""
        from tests.containers.images import PYTHON_IMAGE

        body = json.dumps(
            {
                "command": COMMANDS[runtime],
                "runtime": runtime,
                "stop_grace_s": 0,
                "resources": {"cpu": 0.01, "mem": MEM},
            }
            | ({"image": PYTHON_IMAGE} if runtime == "docker" else {})
        ).encode()
        callers = [self.cluster.caller() for _ in range(count)]
        for caller in callers:
            await caller.call("GET", "/version")  # connect before the measurement

        sent = time.time()
        responses = await asyncio.gather(*(c.call("POST", "/v1/sessions", body) for c in callers))
        ack = time.time() - sent
        for caller in callers:
            caller.close()

        ids = [json.loads(response)["id"] for status, response in responses if status == 201]
        if len(ids) != count:
            raise SystemExit(f"cannot create sessions: {responses[0]}")

        reached = await self._reached(ids, "RUNNING")
        if result is not None:
            result.ack.append(ack)
            for name, at in reached.items():
                result.stages[name].append(at - sent)

            requests = self.recorder.between(sent, reached["RUNNING"])
            result.requests.append([request for request, _ in requests])
            result.engine.append(sum(took for request, took in requests if request in _STARTING))

        return ids, reached["RUNNING"] - sent

    async def stop(self, ids: list[str]) -> None:
        caller = self.cluster.caller()
        for id_ in ids:
            await caller.call("POST", f"/v1/sessions/{id_}/stop", b"{}")
        caller.close()
        await self._reached(ids, "TERMINATED")
        await self.settle()

    async def settle(self) -> None:
        """Wait until the engine has no containers, and a moment more."""
        with client(self.engine.socket) as api:
            async with asyncio.timeout(60):
                while await asyncio.to_thread(api.containers, all=True):
                    await asyncio.sleep(0.05)
        await asyncio.sleep(SETTLE_S)

    async def _reached(self, ids: list[str], status: str) -> dict[str, float]:
        """Wait for ``status``. Returns when the last session reached each status (unix seconds,
        database clock)."""
        async with asyncio.timeout(120):
            while True:
                rows = await self.db.fetch(
                    "SELECT to_status, count(*) AS count, max(extract(epoch FROM at))::float8 AS at "
                    "FROM session_history WHERE session_id = ANY ($1::uuid[]) GROUP BY 1",
                    ids,
                )
                latest = {row["to_status"]: row for row in rows}
                if status in latest and latest[status]["count"] == len(ids):
                    return {name: latest[name]["at"] for name in STAGES if name in latest}
                if "ERROR" in latest:
                    raise SystemExit(f"a session failed: {await self._failure(ids)}")

                await asyncio.sleep(0.02)

    async def _failure(self, ids: list[str]) -> str:
        rows = await self.db.fetch(
            "SELECT reason, detail FROM session_history WHERE session_id = ANY ($1::uuid[]) "
            "AND to_status = 'ERROR'",
            ids,
        )
        return "; ".join(f"{row['reason']}: {row['detail']}" for row in rows)


@contextmanager
def client(socket: Path) -> Iterator[Any]:
    import docker

    api = docker.APIClient(base_url=f"unix://{socket}", timeout=120, max_pool_size=CONCURRENCY)
    try:
        yield api
    finally:
        api.close()


@asynccontextmanager
async def run_node() -> AsyncIterator[Node]:
    from tests.containers.engine import PrivateEngine
    from tests.containers.images import import_python

    folder = Path(tempfile.mkdtemp(prefix="moorage-start-"))
    folder.chmod(0o711)
    engine = PrivateEngine(folder, gpus=False, live_restore=False, network_bits=24)
    try:
        engine.start()
        import_python(engine.socket, folder)

        # The agent's requests pass through this process, which adds about 0.3 ms to each.
        async with (
            start_cluster(0) as at,
            recording(engine.socket, folder / "proxy.sock") as recorder,
        ):
            env = {
                name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")
            }
            env |= {
                "MOORAGE_COMMON__LOG_LEVEL": "warning",
                "MOORAGE_COMMON__LINK_TOKEN": "bench",
                "MOORAGE_COMMON__LINK_TLS": "off",
                "MOORAGE_AGENT__MANAGER": f"127.0.0.1:{at.link}",
                "MOORAGE_AGENT__DOCKER": f"unix://{folder}/proxy.sock",
                "MOORAGE_AGENT__DOCKER_PULL": "never",
                "MOORAGE_AGENT__STOP_KERNELS_ON_EXIT": "true",
            }
            with process(
                "agent", "--home", str(folder / "agent"), env=env, log=folder / "agent.log"
            ) as agent:
                db = await asyncpg.connect(at.dsn)
                try:
                    await _until_attached(db, folder)
                    yield Node(
                        at,
                        db,
                        pid=agent.pid,
                        engine=engine,
                        socket=folder / "proxy.sock",
                        recorder=recorder,
                    )
                finally:
                    await db.close()

            if output := (folder / "agent.log").read_text().strip():
                print(
                    f"last line of the agent's log: {output.splitlines()[-1][:300]}",
                    file=sys.stderr,
                )
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _until_attached(db: asyncpg.Connection, folder: Path) -> None:
    try:
        async with asyncio.timeout(60):
            while not await db.fetchval(
                "SELECT count(*) FROM agents WHERE status = 'ALIVE' AND 'docker' = ANY (runtimes)"
            ):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise SystemExit(
            f"the agent did not attach:\n{(folder / 'agent.log').read_text()[-2000:]}"
        ) from None


@contextmanager
def baselines(node: Node) -> Iterator[dict[str, Baseline]]:
    """Per runtime. Docker's SDK runs in a separate process, as it does in the agent."""
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as sdk_process:

        async def start_processes(count: int) -> tuple[float, float]:
            started_at = time.time()
            start = time.perf_counter()
            pids = []
            for _ in range(count):
                pids.append(
                    os.posix_spawnp(COMMANDS["process"][0], COMMANDS["process"], os.environ)
                )

            took = time.perf_counter() - start
            for pid in pids:
                os.kill(pid, 9)
                os.waitpid(pid, 0)

            return started_at, took

        async def start_containers(count: int) -> tuple[float, float]:
            return await loop.run_in_executor(sdk_process, _start_containers, node.socket, count)

        yield {"process": start_processes, "docker": start_containers}


def _start_containers(socket: Path, count: int) -> tuple[float, float]:
    from tests.containers.images import PYTHON_IMAGE

    clock = SystemClock()

    def start_one(api: Any) -> str:
        launch = Launch(
            KernelId(clock.new_id()),
            tuple(COMMANDS["docker"]),
            {},
            image=PYTHON_IMAGE,
            slots={"cpu": 10, "mem": MEM},
        )
        host = api.create_host_config(**host_config(launch, ContainerRules(), "127.0.0.1", SHARED))
        container = api.create_container(
            **container_config(launch, ContainerRules(), {"baseline": "1"}, SHARED),
            host_config=host,
        )["Id"]
        api.start(container)

        return str(container)

    with client(socket) as api, ThreadPoolExecutor(count) as pool:
        # start the threads and open the connections
        list(pool.map(lambda _: api.ping(), range(count)))
        started_at = time.time()
        start = time.perf_counter()
        containers = list(pool.map(lambda _: start_one(api), range(count)))
        took = time.perf_counter() - start
        list(pool.map(lambda container: api.remove_container(container, force=True), containers))

    return started_at, took


async def measure(
    node: Node, runtime: str, baseline: Baseline, options: argparse.Namespace
) -> StartResult:
    result = StartResult()

    async def start_with_moorage(count: int, into: StartResult | None) -> float:
        ids, took = await node.create(runtime, count, into)
        await node.stop(ids)
        return took

    async def start_baseline() -> None:
        started_at, took = await baseline(1)
        await node.settle()
        requests = node.recorder.between(started_at, started_at + took)
        result.baseline.append(took)
        result.baseline_engine.append(
            sum(took for request, took in requests if request in _STARTING)
        )

    await start_with_moorage(1, None)  # warm up, and create the network that the baseline uses, too
    await baseline(1)
    for number in range(options.rounds):
        if number % 2:
            await start_baseline()

        result.moorage.append(await start_with_moorage(1, result))
        if number % 2 == 0:
            await start_baseline()

    for number in range(options.at_once):
        if number % 2:
            result.baseline_16.append((await baseline(CONCURRENCY))[1])

        result.moorage_16.append(await start_with_moorage(CONCURRENCY, None))
        if number % 2 == 0:
            result.baseline_16.append((await baseline(CONCURRENCY))[1])

    result.idle = await measure_idle(node, runtime, options)
    return result


async def measure_idle(node: Node, runtime: str, options: argparse.Namespace) -> dict[str, float]:
    ids: list[str] = []
    while len(ids) < options.kernels:
        batch, _ = await node.create(runtime, min(CONCURRENCY, options.kernels - len(ids)))
        ids += batch

    await asyncio.sleep(2)
    before = cpu_s(node.pid)
    await asyncio.sleep(options.seconds)
    used = 100 * (cpu_s(node.pid) - before) / options.seconds
    found = {"kernels": len(ids), "cpu_percent": used, "rss_mb": rss_mb(node.pid)}
    found |= {"own_mb": rss_mb(node.pid, "RssAnon"), "share_mb": pss_mb(node.pid)}
    await node.stop(ids)

    return found


async def main() -> None:
    parser = argparse.ArgumentParser(
        description="Start latency of kernels, compared with a baseline."
    )
    parser.add_argument("--rounds", type=int, default=20, help="single starts (20)")
    parser.add_argument(
        "--at-once", type=int, default=5, help=f"rounds of {CONCURRENCY} concurrent starts (5)"
    )
    parser.add_argument("--kernels", type=int, default=50, help="idle kernels (50)")
    parser.add_argument(
        "--seconds", type=float, default=15, help="duration of the idle measurement (15)"
    )
    parser.add_argument(
        "--runtimes", nargs="+", choices=sorted(COMMANDS), default=["process", "docker"]
    )
    parser.add_argument("--json", type=Path, default=HERE / "results" / "start.json")
    options = parser.parse_args()
    from tests.containers.engine import missing_requirement

    if missing := missing_requirement():
        raise SystemExit(f"this benchmark needs a private Docker Engine: {missing}")

    about = machine()
    results = {}
    async with run_node() as node:
        with baselines(node) as baseline:
            for runtime in options.runtimes:
                results[runtime] = await measure(node, runtime, baseline[runtime], options)

    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(
        json.dumps({"machine": about} | {k: vars(v) for k, v in results.items()}, indent=1)
    )
    print(tables(results) + "\n\n" + machine_line(about))


if __name__ == "__main__":
    uvloop.run(main())
