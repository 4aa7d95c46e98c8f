"""The cluster under test: Postgres, two managers, three agents and one for a site, and two proxies
as processes, and their faults."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from moorage.common.model.errors import MoorageError
from moorage.manager.postgres import EmbeddedPostgres
from moorage.sdk import Client
from tests.addresses import agent_ports, free_port, port_range
from tests.e2e.harness import kernels_below, processes, until

from .network import NetworkLink
from .site import GROUP, FaultySite

MANAGERS = ("manager-1", "manager-2")
AGENTS = ("agent-1", "agent-2", "agent-3")
PROXIES = ("proxy-1", "proxy-2")
SITE_AGENT = "site-1"
# Much shorter than in production: agents must become LOST within seconds. But a frozen manager is
# noticed after nine, and its agents must have time to reach the other one.
SUSPECT_AFTER_S = 4.0
LOST_GRACE_S = 8.0


class Cluster:
    """``network``: the link to agent-3, if there is one. ``urls`` and ``openai_urls``: one per
    manager and per proxy. ``key`` is the administrator's. ``agents``: the names of the agents that
    belong to no site. ``site``: None without one; it belongs to the caller."""

    agents: tuple[str, ...] = AGENTS
    site: FaultySite | None = None

    def __init__(
        self,
        home: Path,
        postgres: EmbeddedPostgres,
        network: NetworkLink | None,
        site: FaultySite | None = None,
    ) -> None:
        self.home = home
        self.network = network
        self._postgres = postgres
        self.site = site
        self._address = network.near if network else "127.0.0.1"
        self._ports = {
            component: tuple(free_port() for _ in range(2)) for component in (*MANAGERS, *PROXIES)
        }
        self._port_ranges = {agent: port_range(agent_ports()) for agent in self.all_agents}
        self.urls = [f"http://127.0.0.1:{self._ports[name][0]}" for name in MANAGERS]
        self.openai_urls = [f"http://127.0.0.1:{self._ports[name][0]}/v1" for name in PROXIES]
        links = ",".join(f"{self._address}:{self._ports[name][1]}" for name in MANAGERS)
        self.env = os.environ | {
            "MOORAGE_HOME": str(home),
            # The link is not loopback, but it is a private network.
            "MOORAGE_COMMON__LINK_TLS": "off",
            "MOORAGE_MANAGER__DSN": postgres.dsn,
            "MOORAGE_MANAGER__SUSPECT_AFTER_S": str(SUSPECT_AFTER_S),
            "MOORAGE_MANAGER__LOST_GRACE_S": str(LOST_GRACE_S),
            "MOORAGE_AGENT__MANAGER": links,
            "MOORAGE_AGENT__INVENTORY": "fake:4xH100",
            "MOORAGE_AGENT__REPORT_INTERVAL_S": "1",
            "MOORAGE_PROXY__MANAGER": links,
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def all_agents(self) -> tuple[str, ...]:
        return (*self.agents, SITE_AGENT) if self.site else self.agents

    @property
    def components(self) -> tuple[str, ...]:
        return (*MANAGERS, *self.all_agents, *PROXIES)

    @property
    def key(self) -> str:
        return (self.home / "admin-key").read_text().strip()

    def client(self, timeout: float = 10.0, manager: int = 0) -> Client:
        return Client(self.urls[manager], self.key, timeout=timeout)

    async def start_all(self) -> None:
        self.start(MANAGERS[0])
        key_exists = (self.home / "admin-key").exists
        await until("the first key exists", lambda: asyncio.to_thread(key_exists))
        if self.site is not None:
            await until("the group of the site exists", self._create_site_group)

        for component in self.components[1:]:
            self.start(component)

        async def all_alive() -> bool:
            if exited := self.exited():
                raise AssertionError(
                    f"exited at startup: {', '.join(exited)}\n{self.output(exited[0].split()[0])}"
                )
            async with self.client() as client:
                return [a.status for a in await client.agents.list()] == ["ALIVE"] * len(
                    self.all_agents
                )

        await until("all agents are ALIVE", all_alive)

    async def _create_site_group(self) -> bool:
        """Before its agent connects: a group with agents keeps its kind."""
        assert self.site is not None
        try:
            async with self.client() as client:
                await client.groups.update(GROUP, self.site.group)
        except MoorageError:
            return False
        return True

    def start(self, component: str) -> None:
        kind = "agent" if component in self.all_agents else component.partition("-")[0]
        command: list[str] = [sys.executable, "-m", "moorage", kind]
        env = dict(self.env)
        if component in self._ports:
            first, second = self._ports[component]
            inner = "LINK_LISTEN" if kind == "manager" else "INTERNAL_LISTEN"
            address = self._address if kind == "manager" else "127.0.0.1"
            env[f"MOORAGE_{kind.upper()}__LISTEN"] = f"127.0.0.1:{first}"
            env[f"MOORAGE_{kind.upper()}__{inner}"] = f"{address}:{second}"

        if component in self.all_agents:
            env["MOORAGE_AGENT__ID"] = component
            env["MOORAGE_AGENT__PORT_RANGE"] = self._port_ranges[component]
            env["MOORAGE_AGENT__PROCESS_DISK"] = "0"  # killed components leave no mounts
            if self.network is not None and component == AGENTS[-1]:
                command = [*self.network.prefix, *command]
                env["MOORAGE_AGENT__ADDRESS"] = self.network.far

        if component == SITE_AGENT and self.site is not None:
            env |= self.site.agent()
            del env["MOORAGE_AGENT__INVENTORY"]

        with (self.home / f"{component}.out").open("ab") as log:
            self._running[component] = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def kill(self, component: str) -> None:
        """Send SIGKILL, and wait for the exit. Postgres restarts by itself."""
        if component == "postgres":
            for pid in self.pids(component)[:1]:
                os.kill(pid, signal.SIGKILL)
            return
        process = self._running.pop(component)
        process.kill()
        process.wait()

    def send_signal(self, component: str, number: signal.Signals) -> None:
        """Send a signal to every process of the component."""
        for pid in self.pids(component):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # a backend that has already exited

    def pids(self, component: str) -> list[int]:
        """One process (``ip netns exec`` replaces itself with the command); for Postgres all
        processes, the parent first."""
        if component != "postgres":
            return [self._running[component].pid]

        parent = self._postgres.pid
        if parent is None:
            return []

        return [
            parent,
            *(pid for pid in processes() if _name(pid) == "postgres" and _parent(pid) == parent),
        ]

    def output(self, component: str) -> str:
        """The last part of a component's output."""
        return (self.home / f"{component}.out").read_text()[-2000:]

    def exited(self) -> list[str]:
        """Components that exited on their own."""
        return [
            f"{component} ({process.poll()})"
            for component, process in self._running.items()
            if process.poll()
        ]

    def close(self) -> None:
        for component in list(self._running):
            self.send_signal(component, signal.SIGCONT)

        for component in reversed(list(self._running)):
            process = self._running.pop(component)
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
