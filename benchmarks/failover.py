"""Failover benchmark: the time without placement, and the failed chat requests, when a manager, a
proxy, an agent or Postgres fails.

Two managers on one durable Postgres, simulated agents for batch sessions, and an agent with a model
behind two proxies. Sessions are created 20 times per second through a manager that stays up, and
chat requests are sent as often to a proxy that stays up. A round's result is the longest time
between two placements after its fault, which is 0.05 s and more without one.

    python benchmarks/failover.py --rounds 5 --json results/failover.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg

from cluster import free_port
from measuring import Caller, cpu_s, machine, machine_line
from moorage.common.aio.clock import SystemClock
from moorage.manager.postgres import EmbeddedPostgres

EVERY_S = 0.05
WATCH_S = 8.0
STOPPED_S = 6.0
SESSION = json.dumps({"command": ["true"], "resources": {"cpu": 0.1}, "runtime": "fake"}).encode()
CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
SETTINGS = {"max_connections": "120"}  # 40 for a manager
# Faults of the leader, then of others.
FAULTS = ("kill -9", "SIGTERM", "SIGSTOP", "Postgres restart", "other manager", "proxy", "agents")
# Maximum number of seconds without placement.
GOALS = {"SIGTERM": 0.3} | dict.fromkeys(("kill -9", "other manager", "proxy", "agents"), 3.0)


class Site:
    """The processes, by name: ``a`` and ``b`` are the managers."""

    def __init__(self, home: Path, postgres: EmbeddedPostgres) -> None:
        self.home = home
        self.postgres = postgres
        self.ports = {name: (free_port(), free_port()) for name in ("a", "b", "proxy", "proxy 2")}
        self.links = {name: f"127.0.0.1:{self.ports[name][1]}" for name in ("a", "b")}
        env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
        self.env = env | {
            "MOORAGE_COMMON__LOG_LEVEL": "warning",
            "MOORAGE_COMMON__LINK_TOKEN": "bench",
            "MOORAGE_COMMON__LINK_TLS": "off",
            "MOORAGE_MANAGER__DSN": postgres.dsn,
            "MOORAGE_AGENT__MANAGER": ",".join(self.links.values()),
            "MOORAGE_PROXY__MANAGER": ",".join(self.links.values()),
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.key = ""

    def start(self, name: str, *command: str) -> None:
        with (self.home / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "moorage", *command, "--home", str(self.home / name)],
                env=self.env, stdout=log, stderr=log,
            )  # fmt: skip

    async def start_manager(self, name: str) -> None:
        api, _ = self.ports[name]
        self.start(
            name, "manager", "--listen", f"127.0.0.1:{api}", "--link-listen", self.links[name]
        )
        if not self.key:
            await until(lambda: asyncio.sleep(0, (self.home / name / "admin-key").exists()))
            self.key = (self.home / name / "admin-key").read_text().strip()
        await until(lambda: self.is_ready(api))

    async def is_ready(self, port: int) -> bool:
        return (await Caller("127.0.0.1", port, self.key).call("GET", "/readyz"))[0] == 200

    async def sql(self, statement: str, *args: Any) -> list[Any]:
        connection = await asyncpg.connect(self.postgres.dsn)
        try:
            found: list[Any] = await connection.fetch(statement, *args)
            return found
        finally:
            await connection.close()

    async def leader(self) -> str:
        rows = await self.sql(
            "SELECT m.link FROM leases l JOIN managers m ON m.id::text = l.holder"
        )
        return next(
            (name for name, link in self.links.items() if rows and rows[0]["link"] == link), ""
        )

    async def is_settled(self) -> bool:
        """Both managers are up, one leads, and every agent is connected."""
        rows = await self.sql(
            "SELECT (SELECT count(*) FROM managers) AS managers, (SELECT count(*) FROM agents "
            "WHERE status = 'ALIVE' AND manager IN (SELECT id FROM managers) "
            "AND detached_stream IS DISTINCT FROM stream) AS agents"
        )
        return (rows[0]["managers"], rows[0]["agents"]) == (2, 5) and bool(await self.leader())

    def start_agents(self, name: str) -> None:
        self.start(name, "simulate", "--agents", "2", "--prefix", f"{name.replace(' ', '-')}-")

    def start_proxy(self, name: str) -> None:
        openai, internal = (f"127.0.0.1:{port}" for port in self.ports[name])
        self.start(name, "proxy", "--listen", openai, "--internal-listen", internal)

    async def start_again(self, name: str) -> None:
        if name in ("a", "b"):
            await self.start_manager(name)
        elif name == "proxy 2":
            self.start_proxy(name)
        else:
            self.start_agents(name)

    async def up(self) -> None:
        for name in ("a", "b"):
            await self.start_manager(name)

        self.start_agents("agents 1")
        self.start_agents("agents 2")
        first = 23_000 + os.getpid() % 500
        self.start(
            "node", "agent", "--id", "node", "--set", f"agent.port_range={first}-{first + 9}"
        )
        self.start_proxy("proxy")
        self.start_proxy("proxy 2")
        await until(self.is_settled)
        engine = str(Path(__file__).with_name("instant_engine.py"))
        endpoint = {
            "name": "m", "engine": "custom", "command": [sys.executable, engine, "{port}"],
            "resources": {"cpu": 0.1}, "probe": {"path": "/"},
        }  # fmt: skip
        api = Caller("127.0.0.1", self.ports["a"][0], self.key)
        status, answer = await api.call("POST", "/v1/endpoints", json.dumps(endpoint).encode())
        assert status == 201, answer
        for name in ("proxy", "proxy 2"):
            proxy = Caller("127.0.0.1", self.ports[name][0], self.key)
            await until(lambda proxy=proxy: is_answered(proxy))

    def close(self) -> None:
        for running in reversed(self.running.values()):
            running.send_signal(signal.SIGCONT)
            running.terminate()
        for running in self.running.values():
            try:
                running.wait(30)
            except subprocess.TimeoutExpired:
                running.kill()


async def until(holds: Callable[[], Any], timeout_s: float = 120.0) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            with contextlib.suppress(OSError, EOFError, asyncpg.PostgresError):
                if await holds():
                    return
            await asyncio.sleep(0.1)


async def is_answered(proxy: Caller) -> bool:
    return (await proxy.call("POST", "/v1/chat/completions", CHAT))[0] == 200


async def repeat(port: int, key: str, path: str, body: bytes, *, failures: list[str]) -> None:
    """Send the request every ``EVERY_S`` seconds; failures are recorded."""
    caller = Caller("127.0.0.1", port, key)
    while True:
        try:
            async with asyncio.timeout(10):
                status, _ = await caller.call("POST", path, body)

            if status not in (200, 201):
                failures.append(str(status))
        except (OSError, EOFError, TimeoutError) as error:
            failures.append(type(error).__name__)
            caller.close()

        await asyncio.sleep(EVERY_S)


async def measure_round(site: Site, fault: str) -> dict[str, Any]:
    await until(site.is_settled)
    leader = await site.leader()
    follower = "b" if leader == "a" else "a"

    # The process that fails, unless it is Postgres.
    name = {"other manager": follower, "proxy": "proxy 2", "agents": "agents 2"}.get(fault, leader)
    api = leader if name == follower else follower
    chats: list[str] = []
    tasks = [
        asyncio.create_task(
            repeat(site.ports[api][0], site.key, "/v1/sessions", SESSION, failures=[])
        ),
        asyncio.create_task(
            repeat(site.ports["proxy"][0], site.key, "/v1/chat/completions", CHAT, failures=chats)
        ),
    ]
    try:
        await asyncio.sleep(2)
        at = time.time()
        process = site.running[name]
        if fault == "Postgres restart":
            os.kill(site.postgres.pid or 0, signal.SIGINT)  # a fast shutdown; it is started again
        else:
            number = signal.Signals[fault] if fault.startswith("SIG") else signal.SIGKILL
            process.send_signal(number)

        await asyncio.sleep(STOPPED_S if fault == "SIGSTOP" else WATCH_S)
        if fault == "SIGSTOP":
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(WATCH_S - STOPPED_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    if fault not in ("SIGSTOP", "Postgres restart"):
        process.wait(30)
        await site.start_again(name)

    rows = await site.sql(
        "SELECT extract(epoch FROM at)::float8 AS at FROM session_history WHERE event = 'placed' "
        "AND at > to_timestamp($1::float8) ORDER BY at", at - 1,
    )  # fmt: skip
    times = [row["at"] for row in rows]
    gaps = [
        after - before
        for before, after in zip(times, [*times[1:], at + WATCH_S], strict=True)
        if after > at
    ]
    return {
        "fault": fault,
        "without_placement_s": max(gaps),
        "failed_chats": len(chats),
        "failures": chats[:5],
    }


async def idle_cost(site: Site) -> dict[str, float]:
    """CPU of an idle leader and an idle follower, in percent of a core."""
    await until(site.is_settled)
    leader = await site.leader()
    seconds = 20.0
    before = {name: cpu_s(site.running[name].pid) for name in ("a", "b")}
    await asyncio.sleep(seconds)
    used = {
        name: 100 * (cpu_s(site.running[name].pid) - before[name]) / seconds for name in ("a", "b")
    }

    return {"leader": used[leader], "follower": used["b" if leader == "a" else "a"]}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--json", type=Path, default=Path("results/failover.json"))
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="moorage-failover-"))
    home.chmod(0o711)
    conditions = machine()
    rounds = []
    try:
        async with EmbeddedPostgres(home / "pg", clock=SystemClock(), extra=SETTINGS) as postgres:
            site = Site(home, postgres)
            try:
                await site.up()
                idle = await idle_cost(site)
                for fault in given.faults.split(","):
                    for _ in range(given.rounds):
                        rounds.append(await measure_round(site, fault))
                        print(rounds[-1], file=sys.stderr, flush=True)
            finally:
                site.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)

    print(machine_line(conditions))
    print(f"idle: leader {idle['leader']:.1f} %, follower {idle['follower']:.1f} % of a core\n")
    print("| fault | rounds | without placement, p50 s | max s | goal s | failed chats |")
    print("|---|---:|---:|---:|---:|---:|")

    for fault in given.faults.split(","):
        found = [one for one in rounds if one["fault"] == fault]
        gaps = [one["without_placement_s"] for one in found]
        failed = sum(one["failed_chats"] for one in found)
        row = (
            f"{statistics.median(gaps):.2f} | {max(gaps):.2f} | {GOALS.get(fault, '')} | {failed} |"
        )
        print(f"| {fault} | {len(found)} | {row}")

    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(
        json.dumps({"machine": conditions, "idle": idle, "rounds": rounds}, indent=2)
    )


if __name__ == "__main__":
    asyncio.run(main())
