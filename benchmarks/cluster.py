"""Cluster for benchmarks: Postgres, a manager and simulated agents, each in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from measuring import Caller, cpu_s, family
from moorage.common.aio.clock import SystemClock
from moorage.manager.postgres import EmbeddedPostgres

STARTUP_S = 120.0


@dataclass
class Cluster:
    """``pids``: of the managers (``manager``, ``manager 2``…), of Postgres' parent process, and of
    the fleet simulator. ``ports``: of the API of each manager; ``port`` is the first. ``start``:
    restarts the manager with this number, from 1, on its ports."""

    dsn: str
    host: str
    port: int
    link: int
    key: str
    pids: dict[str, int]
    ports: tuple[int, ...] = ()
    start: Callable[[int], object] = lambda _: None

    def caller(self, number: int = 0) -> Caller:
        """Sends it to one of the managers in turn."""
        ports = self.ports or (self.port,)
        return Caller(self.host, ports[number % len(ports)], self.key)

    def cpu(self) -> dict[str, float]:
        """CPU seconds used so far by the manager, Postgres (all live processes) and the agents."""
        return {name: sum(map(cpu_s, family(pid))) for name, pid in self.pids.items()}


def manager_name(number: int) -> str:
    return "manager" if number == 1 else f"manager {number}"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def process(*command: str, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        running = subprocess.Popen(
            [sys.executable, "-m", "moorage", *command], env=env, stdout=out, stderr=out
        )

    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


@asynccontextmanager
async def start_cluster(
    agents: int, *options: str, settings: dict[str, str] | None = None, managers: int = 1
) -> AsyncIterator[Cluster]:
    """Durable Postgres, ``managers`` and ``agents`` simulated agents; everything is stopped and
    removed at exit."""
    home = Path(tempfile.mkdtemp(prefix="moorage-bench-"))
    home.chmod(0o711)
    apis, links = ([free_port() for _ in range(managers)] for _ in range(2))
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    env |= {
        "MOORAGE_COMMON__LOG_LEVEL": "warning",
        "MOORAGE_COMMON__LINK_TOKEN": "bench",
        "MOORAGE_COMMON__LINK_TLS": "off",
        "MOORAGE_AGENT__MANAGER": ",".join(f"127.0.0.1:{link}" for link in links),
    }

    try:
        async with AsyncExitStack() as stack:
            postgres = await stack.enter_async_context(
                EmbeddedPostgres(home / "pg", clock=SystemClock(), extra=settings)
            )
            env["MOORAGE_MANAGER__DSN"] = postgres.dsn
            pids = {"postgres": postgres.pid or 0}
            started = Cluster(
                postgres.dsn,
                "127.0.0.1",
                port=apis[0],
                link=links[0],
                key="",
                pids=pids,
                ports=tuple(apis),
            )

            def start(number: int) -> subprocess.Popen[bytes]:
                name = manager_name(number)
                api = apis[number - 1]
                link = links[number - 1]
                listen = ("--listen", f"127.0.0.1:{api}", "--link-listen", f"127.0.0.1:{link}")
                command = ("manager", "--home", str(home / name), *listen)
                running = stack.enter_context(process(*command, env=env, log=home / f"{name}.log"))
                pids[name] = running.pid
                return running

            started.start = start
            for number in range(1, managers + 1):
                manager = start(number)
                started.key = started.key or await _key(home, manager)
                await wait_until_ready(started, number - 1)

            if agents:
                arguments = (
                    "simulate",
                    "--agents",
                    str(agents),
                    "--home",
                    str(home / "agents"),
                    *options,
                )
                simulator = stack.enter_context(
                    process(*arguments, env=env, log=home / "agents.log")
                )
                pids["agents"] = simulator.pid
                await _wait_until_alive(started, agents, home)

            yield started
            for text, count in _warnings(home / "manager.log").most_common():
                print(f"the manager logged {count} times: {text}", file=sys.stderr)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _warnings(log: Path) -> Counter[str]:
    """The messages in a log above the level info, without their subjects."""
    return Counter(
        re.findall(r"(?m)\[(?:warning|error|critical) *\] (.*?)(?: +\w+=.*)?$", log.read_text())
    )


async def _key(home: Path, manager: subprocess.Popen[bytes]) -> str:
    async with asyncio.timeout(STARTUP_S):
        while manager.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                if key := (home / "manager" / "admin-key").read_text().strip():
                    return key
            await asyncio.sleep(0.05)
    raise SystemExit(f"the manager did not start:\n{(home / 'manager.log').read_text()[-2000:]}")


async def wait_until_ready(cluster: Cluster, number: int) -> None:
    async with asyncio.timeout(STARTUP_S):
        while True:
            try:
                status, _ = await cluster.caller(number).call("GET", "/readyz")
            except OSError:
                status = 0
            if status == 200:
                return
            await asyncio.sleep(0.05)


async def _wait_until_alive(cluster: Cluster, agents: int, home: Path) -> None:
    connection = await asyncpg.connect(cluster.dsn)
    try:
        async with asyncio.timeout(STARTUP_S + agents * 0.02):
            while (
                await connection.fetchval("SELECT count(*) FROM agents WHERE status = 'ALIVE'")
                < agents
            ):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise SystemExit(
            f"the agents did not connect:\n{(home / 'agents.log').read_text()[-2000:]}"
        ) from None
    finally:
        await connection.close()
