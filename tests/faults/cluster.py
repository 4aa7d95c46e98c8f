"""A manager with its own Postgres, three agents and a proxy as processes, and what can be done to them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from moorage.sdk import Client
from tests.e2e.harness import kernels_below, processes, until
from tests.free_ports import free_port

from .network import Wire

AGENTS = ("agent-1", "agent-2", "agent-3")
PARTS = ("manager", *AGENTS, "proxy")
# Silence is judged much sooner than an operator would want: lost agents must happen within seconds.
SUSPECT_AFTER_S, LOST_GRACE_S = 4.0, 5.0
_PORTS_EACH = 40


class Cluster:
    """``wire``: agent-3 lives behind it. ``url``, ``openai_url`` and ``key`` are for clients."""

    def __init__(self, home: Path, wire: Wire | None) -> None:
        self.home, self.wire = home, wire
        api, openai, internal, link = (free_port() for _ in range(4))
        near = wire.near if wire else "127.0.0.1"
        self.url, self.openai_url = f"http://127.0.0.1:{api}", f"http://127.0.0.1:{openai}/v1"
        self.env = os.environ | {
            "MOORAGE_HOME": str(home),
            # The wire is not loopback, but a network of our own.
            "MOORAGE_COMMON__LINK_TLS": "off",
            "MOORAGE_MANAGER__LISTEN": f"127.0.0.1:{api}",
            "MOORAGE_MANAGER__LINK_LISTEN": f"{near}:{link}",
            "MOORAGE_MANAGER__SUSPECT_AFTER_S": str(SUSPECT_AFTER_S),
            "MOORAGE_MANAGER__LOST_GRACE_S": str(LOST_GRACE_S),
            "MOORAGE_AGENT__MANAGER": f"{near}:{link}",
            "MOORAGE_AGENT__INVENTORY": "fake:4xH100",
            "MOORAGE_AGENT__REPORT_INTERVAL_S": "1",
            "MOORAGE_PROXY__LISTEN": f"127.0.0.1:{openai}",
            "MOORAGE_PROXY__INTERNAL_LISTEN": f"127.0.0.1:{internal}",
            "MOORAGE_PROXY__MANAGER": f"{near}:{link}",
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def key(self) -> str:
        return (self.home / "admin-key").read_text().strip()

    def client(self, timeout: float = 10.0) -> Client:
        return Client(self.url, self.key, timeout=timeout)

    async def start_all(self) -> None:
        self.start("manager")
        there = (self.home / "admin-key").exists
        await until("the first key is there", lambda: asyncio.to_thread(there))
        for part in PARTS[1:]:
            self.start(part)

        async def all_alive() -> bool:
            if ended := self.dead():
                raise AssertionError(
                    f"ended at its start: {', '.join(ended)}\n{self.said(ended[0].split()[0])}"
                )
            async with self.client() as client:
                return [a.status for a in await client.list_agents()] == ["ALIVE"] * len(AGENTS)

        await until("all agents are there", all_alive)

    def start(self, part: str) -> None:
        command: list[str] = [sys.executable, "-m", "moorage", part.partition("-")[0]]
        env = dict(self.env)
        if part in AGENTS:
            index = AGENTS.index(part)
            first = 24_000 + os.getpid() % 50 * _PORTS_EACH * len(AGENTS) + index * _PORTS_EACH
            env["MOORAGE_AGENT__ID"] = part
            env["MOORAGE_AGENT__PORT_RANGE"] = f"{first}-{first + _PORTS_EACH - 1}"
            if self.wire is not None and part == AGENTS[-1]:
                command = [*self.wire.prefix, *command]
                env["MOORAGE_AGENT__ADDRESS"] = self.wire.far
        with (self.home / f"{part}.out").open("ab") as log:
            self._running[part] = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def kill(self, part: str) -> None:
        """kill -9, and wait until it is dead. ``postgres`` comes back by its manager."""
        if part == "postgres":
            for pid in self.pids(part)[:1]:
                os.kill(pid, signal.SIGKILL)
            return
        process = self._running.pop(part)
        process.kill()
        process.wait()

    def halt(self, part: str, number: signal.Signals) -> None:
        """SIGSTOP or SIGCONT, to every process that the part consists of."""
        for pid in self.pids(part):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # a backend that ended meanwhile

    def pids(self, part: str) -> list[int]:
        """A part is one process (``ip netns exec`` becomes what it runs); Postgres is many, head first."""
        if part != "postgres":
            return [self._running[part].pid]
        manager = self._running["manager"].pid
        family = {pid: _parent(pid) for pid in processes() if _name(pid) == "postgres"}
        head = next((pid for pid, parent in family.items() if parent == manager), None)
        return [] if head is None else [head, *(pid for pid, parent in family.items() if parent == head)]

    def said(self, part: str) -> str:
        """The end of its output."""
        return (self.home / f"{part}.out").read_text()[-2000:]

    def dead(self) -> list[str]:
        """Parts that ended by themselves."""
        return [f"{part} ({process.poll()})" for part, process in self._running.items() if process.poll()]

    def close(self) -> None:
        for part in list(self._running):
            self.halt(part, signal.SIGCONT)
        for part in reversed(list(self._running)):
            process = self._running.pop(part)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in kernels_below(self.home):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0
