"""A Postgres, a manager and played agents, each a process of its own, for the benchmarks that load them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from measuring import Caller, cpu_s, family
from moorage.common.aio.clock import SystemClock
from moorage.manager.postgres import EmbeddedPostgres

UP_S = 60.0


@dataclass
class Cluster:
    """``pids``: the manager, Postgres's first process, and the player of the agents."""

    dsn: str
    host: str
    port: int
    link: int
    key: str
    pids: dict[str, int]

    def caller(self) -> Caller:
        return Caller(self.host, self.port, self.key)

    def cpu(self) -> dict[str, float]:
        """CPU seconds used so far: manager, postgres (all its processes that live), agents."""
        return {name: sum(map(cpu_s, family(pid))) for name, pid in self.pids.items()}


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
async def cluster(
    agents: int, *options: str, settings: dict[str, str] | None = None
) -> AsyncIterator[Cluster]:
    """Durable Postgres, a manager, ``agents`` played ones; all is ended and removed after."""
    home = Path(tempfile.mkdtemp(prefix="moorage-bench-"))
    home.chmod(0o711)
    api, link = free_port(), free_port()
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    env |= {
        "MOORAGE_COMMON__LOG_LEVEL": "warning",
        "MOORAGE_COMMON__LINK_TOKEN": "bench",
        "MOORAGE_AGENT__MANAGER": f"127.0.0.1:{link}",
    }
    try:
        async with AsyncExitStack() as stack:
            postgres = await stack.enter_async_context(
                EmbeddedPostgres(home / "pg", clock=SystemClock(), extra=settings)
            )
            env["MOORAGE_MANAGER__DSN"] = postgres.dsn
            listen = ("--listen", f"127.0.0.1:{api}", "--link-listen", f"127.0.0.1:{link}")
            command = ("manager", "--home", str(home / "manager"), *listen)
            manager = stack.enter_context(process(*command, env=env, log=home / "manager.log"))
            key = await _key(home, manager)
            pids = {"manager": manager.pid, "postgres": postgres.pid or 0}
            made = Cluster(postgres.dsn, "127.0.0.1", api, link, key, pids)
            await _answers(made, home)
            if agents:
                played = ("simulate", "--agents", str(agents), "--home", str(home / "agents"), *options)
                player = stack.enter_context(process(*played, env=env, log=home / "agents.log"))
                pids["agents"] = player.pid
                await _attached(made, agents, home)
            yield made
            said = [
                line
                for line in (home / "manager.log").read_text().splitlines()
                if "[war" in line or "[err" in line
            ]
            if said:
                print(f"the manager warned {len(said)} times, last: {said[-1][:200]}", file=sys.stderr)
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _key(home: Path, manager: subprocess.Popen[bytes]) -> str:
    async with asyncio.timeout(UP_S):
        while manager.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                if key := (home / "manager" / "admin-key").read_text().strip():
                    return key
            await asyncio.sleep(0.05)
    raise SystemExit(f"the manager did not start:\n{(home / 'manager.log').read_text()[-2000:]}")


async def _answers(made: Cluster, home: Path) -> None:
    async with asyncio.timeout(UP_S):
        while True:
            try:
                status, _ = await made.caller().call("GET", "/readyz")
            except OSError:
                status = 0
            if status == 200:
                return
            await asyncio.sleep(0.05)


async def _attached(made: Cluster, agents: int, home: Path) -> None:
    connection = await asyncpg.connect(made.dsn)
    try:
        async with asyncio.timeout(UP_S + agents * 0.02):
            while await connection.fetchval("SELECT count(*) FROM agents WHERE status = 'ALIVE'") < agents:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise SystemExit(f"the agents did not come:\n{(home / 'agents.log').read_text()[-2000:]}") from None
    finally:
        await connection.close()
