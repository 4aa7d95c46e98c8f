"""What Moorage adds to starting a kernel: create → RUNNING against the floor, measured in the same rounds.

    python benchmarks/start.py [--rounds 20] [--kernels 50] [--runtimes process docker]

Postgres (durable), a manager and an agent are processes of their own; the Docker Engine is a private one, as
of tests/containers (root on Linux). The floor of ``docker`` is create and start of the same image with
exactly the agent's options by Docker's own SDK, over a connection that is open; that of ``process`` is
``posix_spawn`` of the same program. Each round measures the floor and Moorage one after the other, in turns
of who is first. Times of Moorage are from sending the request to the row of RUNNING in the history.

An engine takes a second for a container, now more and now less, and what is added would vanish in that. So a
process of ours stands before the engine, for the floor as for the agent, and notes how long the engine itself
took to create and to start: what is added is the difference of the rest, and the engine's own times, which
must be the same for both, are shown beside it.

Then 16 at once, against 16 threads with the SDK; last, what the agent uses while ``--kernels`` run and
nothing happens. Leaves every measurement in ``benchmarks/results/start.json``.
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

from cluster import Cluster, cluster, process
from listening import Listener, listening
from measuring import cpu_s, machine, machine_line, pss_mb, rss_mb
from moorage.agent.runtimes import Launch
from moorage.agent.runtimes.docker import ContainerRules
from moorage.agent.runtimes.docker.container_config import container_config, host_config
from moorage.agent.runtimes.docker.networks import SHARED
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from start_table import AT_ONCE, STAGES, Found, tables

if TYPE_CHECKING:
    from tests.containers.engine import PrivateEngine

HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE.parent)
)  # for the private engine of the tests, which is imported where it is used
REST_S = 0.5
MEM = 32 << 20
WORDS = {
    "process": ["sleep", "3600"],
    "docker": ["python3", "-S", "-c", "import time; time.sleep(3600)"],
}
_STARTING = ("POST /containers/create", "POST /containers/ID/start")
Floor = Callable[[int], Awaitable[tuple[float, float]]]
"""Starts so many: when it began (unix seconds), and seconds until the last was started."""


@dataclass
class Node:
    """One agent, its manager, and the engine that it may use; ``socket``: that of the engine, through us."""

    at: Cluster
    db: asyncpg.Connection
    pid: int
    engine: PrivateEngine
    socket: Path
    heard: Listener

    async def create(self, runtime: str, count: int, found: Found | None = None) -> tuple[list[str], float]:
        """So many at once; the ids, and seconds from the first request to the last row of RUNNING."""
        from tests.containers.images import PYTHON_IMAGE

        body = json.dumps(
            {
                "command": WORDS[runtime],
                "runtime": runtime,
                "stop_grace_s": 0,
                "resources": {"cpu": 0.01, "mem": MEM},
            }
            | ({"image": PYTHON_IMAGE} if runtime == "docker" else {})
        ).encode()
        callers = [self.at.caller() for _ in range(count)]
        for caller in callers:
            await caller.call("GET", "/version")  # connected before the clock runs
        sent = time.time()
        answers = await asyncio.gather(*(one.call("POST", "/v1/sessions", body) for one in callers))
        ack = time.time() - sent
        for caller in callers:
            caller.close()
        ids = [json.loads(answer)["id"] for status, answer in answers if status == 201]
        if len(ids) != count:
            raise SystemExit(f"not created: {answers[0]}")
        moments = await self._reached(ids, "RUNNING")
        if found is not None:
            found.ack.append(ack)
            for name, moment in moments.items():
                found.stages[name].append(moment - sent)
            asked = self.heard.between(sent, moments["RUNNING"])
            found.asked.append([what for what, _ in asked])
            found.engine.append(sum(took for what, took in asked if what in _STARTING))
        return ids, moments["RUNNING"] - sent

    async def end(self, ids: list[str]) -> None:
        caller = self.at.caller()
        for id_ in ids:
            await caller.call("POST", f"/v1/sessions/{id_}/stop", b"{}")
        caller.close()
        await self._reached(ids, "TERMINATED")
        await self.settle()

    async def settle(self) -> None:
        """Until nothing of what has ended is left in the engine, and all is at rest."""
        with client(self.engine.socket) as api:
            async with asyncio.timeout(60):
                while await asyncio.to_thread(api.containers, all=True):
                    await asyncio.sleep(0.05)
        await asyncio.sleep(REST_S)

    async def _reached(self, ids: list[str], status: str) -> dict[str, float]:
        """When the last of them came to each status, unix seconds, by the database's clock."""
        async with asyncio.timeout(120):
            while True:
                rows = await self.db.fetch(
                    "SELECT to_status, count(*) AS count, max(extract(epoch FROM at))::float8 AS at "
                    "FROM session_history WHERE session_id = ANY ($1::uuid[]) GROUP BY 1",
                    ids,
                )
                seen = {row["to_status"]: row for row in rows}
                if status in seen and seen[status]["count"] == len(ids):
                    return {name: seen[name]["at"] for name in STAGES if name in seen}
                if "ERROR" in seen:
                    raise SystemExit(f"a session failed: {await self._why(ids)}")
                await asyncio.sleep(0.02)

    async def _why(self, ids: list[str]) -> str:
        rows = await self.db.fetch(
            "SELECT reason, detail FROM session_history WHERE session_id = ANY ($1::uuid[]) "
            "AND to_status = 'ERROR'",
            ids,
        )
        return "; ".join(f"{row['reason']}: {row['detail']}" for row in rows)


@contextmanager
def client(socket: Path) -> Iterator[Any]:
    import docker

    api = docker.APIClient(base_url=f"unix://{socket}", timeout=120, max_pool_size=AT_ONCE)
    try:
        yield api
    finally:
        api.close()


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    from tests.containers.engine import PrivateEngine
    from tests.containers.images import import_python

    folder = Path(tempfile.mkdtemp(prefix="moorage-start-"))
    folder.chmod(0o711)
    engine = PrivateEngine(folder, gpus=False, live_restore=False, network_bits=24)
    try:
        engine.start()
        import_python(engine.socket, folder)
        # The agent's questions pass through this process: it is a part of what is measured, some 0.3 ms each.
        async with cluster(0) as at, listening(engine.socket, folder / "heard.sock") as heard:
            env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
            env |= {
                "MOORAGE_COMMON__LOG_LEVEL": "warning",
                "MOORAGE_COMMON__LINK_TOKEN": "bench",
                "MOORAGE_AGENT__MANAGER": f"127.0.0.1:{at.link}",
                "MOORAGE_AGENT__DOCKER": f"unix://{folder}/heard.sock",
                "MOORAGE_AGENT__DOCKER_PULL": "never",
                "MOORAGE_AGENT__STOP_KERNELS_ON_EXIT": "true",
            }
            with process(
                "agent", "--home", str(folder / "agent"), env=env, log=folder / "agent.log"
            ) as agent:
                db = await asyncpg.connect(at.dsn)
                try:
                    await _attached(db, folder)
                    yield Node(at, db, agent.pid, engine, folder / "heard.sock", heard)
                finally:
                    await db.close()
            if said := (folder / "agent.log").read_text().strip():
                print(f"the agent said, last: {said.splitlines()[-1][:300]}", file=sys.stderr)
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _attached(db: asyncpg.Connection, folder: Path) -> None:
    try:
        async with asyncio.timeout(60):
            while not await db.fetchval(
                "SELECT count(*) FROM agents WHERE status = 'ALIVE' AND 'docker' = ANY (runtimes)"
            ):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise SystemExit(f"the agent did not come:\n{(folder / 'agent.log').read_text()[-2000:]}") from None


@contextmanager
def floors(at: Node) -> Iterator[dict[str, Floor]]:
    """Each without Moorage. Docker's SDK is in a process of its own, as it is in the agent."""
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:

        async def spawned(count: int) -> tuple[float, float]:
            began, start, pids = time.time(), time.perf_counter(), []
            for _ in range(count):
                pids.append(os.posix_spawnp(WORDS["process"][0], WORDS["process"], os.environ))
            took = time.perf_counter() - start
            for pid in pids:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            return began, took

        async def contained(count: int) -> tuple[float, float]:
            return await loop.run_in_executor(apart, _contained, at.socket, count)

        yield {"process": spawned, "docker": contained}


def _contained(socket: Path, count: int) -> tuple[float, float]:
    from tests.containers.images import PYTHON_IMAGE

    clock = SystemClock()

    def one(api: Any) -> str:
        order = Launch(
            KernelId(clock.new_id()),
            tuple(WORDS["docker"]),
            {},
            image=PYTHON_IMAGE,
            slots={"cpu": 10, "mem": MEM},
        )
        host = api.create_host_config(**host_config(order, ContainerRules(), "127.0.0.1", SHARED))
        made = api.create_container(
            **container_config(order, ContainerRules(), {"floor": "1"}, SHARED), host_config=host
        )["Id"]
        api.start(made)
        return str(made)

    with client(socket) as api, ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda _: api.ping(), range(count)))  # threads and connections are there
        began, start = time.time(), time.perf_counter()
        made = list(pool.map(lambda _: one(api), range(count)))
        took = time.perf_counter() - start
        list(pool.map(lambda container: api.remove_container(container, force=True), made))
    return began, took


async def rounds(at: Node, runtime: str, floor: Floor, options: argparse.Namespace) -> Found:
    found = Found()

    async def ours(count: int, into: Found | None) -> float:
        ids, took = await at.create(runtime, count, into)
        await at.end(ids)
        return took

    async def without() -> None:
        began, took = await floor(1)
        await at.settle()
        asked = at.heard.between(began, began + took)
        found.floor.append(took)
        found.floor_engine.append(sum(took for what, took in asked if what in _STARTING))

    await ours(1, None)  # warm; and the network is there on which the floor's containers are too
    await floor(1)
    for number in range(options.rounds):
        if number % 2:
            await without()
        found.ours.append(await ours(1, found))
        if number % 2 == 0:
            await without()
    for number in range(options.at_once):
        if number % 2:
            found.floor_16.append((await floor(AT_ONCE))[1])
        found.ours_16.append(await ours(AT_ONCE, None))
        if number % 2 == 0:
            found.floor_16.append((await floor(AT_ONCE))[1])
    found.idle = await idle(at, runtime, options)
    return found


async def idle(at: Node, runtime: str, options: argparse.Namespace) -> dict[str, float]:
    ids: list[str] = []
    while len(ids) < options.kernels:
        more, _ = await at.create(runtime, min(AT_ONCE, options.kernels - len(ids)))
        ids += more
    await asyncio.sleep(2)
    before = cpu_s(at.pid)
    await asyncio.sleep(options.seconds)
    used = 100 * (cpu_s(at.pid) - before) / options.seconds
    found = {"kernels": len(ids), "cpu_percent": used, "rss_mb": rss_mb(at.pid)}
    found |= {"own_mb": rss_mb(at.pid, "RssAnon"), "share_mb": pss_mb(at.pid)}
    await at.end(ids)
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(description="What Moorage adds to starting a kernel.")
    parser.add_argument("--rounds", type=int, default=20, help="starts of one (20)")
    parser.add_argument("--at-once", type=int, default=5, help=f"starts of {AT_ONCE} at once (5)")
    parser.add_argument("--kernels", type=int, default=50, help="kernels at rest (50)")
    parser.add_argument(
        "--seconds", type=float, default=15, help="how long the agent at rest is watched (15)"
    )
    parser.add_argument("--runtimes", nargs="+", choices=sorted(WORDS), default=["process", "docker"])
    parser.add_argument("--json", type=Path, default=HERE / "results" / "start.json")
    options = parser.parse_args()
    from tests.containers.engine import lacks

    if why := lacks():
        raise SystemExit(f"this benchmark needs a Docker Engine of its own: {why}")
    about, found = machine(), {}
    async with node() as at:
        with floors(at) as floor:
            for runtime in options.runtimes:
                found[runtime] = await rounds(at, runtime, floor[runtime], options)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": about} | {k: vars(v) for k, v in found.items()}, indent=1))
    print(tables(found) + "\n\n" + machine_line(about))


if __name__ == "__main__":
    uvloop.run(main())
