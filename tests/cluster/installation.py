"""A whole installation on separate hosts: three managers with three etcd members beside them, a
primary and a standby, two proxies and two agents."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.harness import until
from tests.faults.cluster import LOST_GRACE_S, SUSPECT_AFTER_S, Cluster
from tests.previous_release import without_newer_settings

from .namespaces import Namespaces
from .postgres_pair import HOSTS, PostgresPair

MANAGERS = ("manager-1", "manager-2", "manager-3")
AGENTS = ("agent-1", "agent-2")
PROXIES = ("proxy-1", "proxy-2")
ETCD = ("etcd-1", "etcd-2", "etcd-3")
COMPONENTS = (*MANAGERS, *AGENTS, *PROXIES)
API = 8700
LINK = 8701
OPENAI = 8800
INTERNAL = 8801
CLIENTS = 2379
PEERS = 2380


class Installation(Cluster):
    """``previous``: the sources of the previous release, or None if they are not available. Each
    etcd member is on the host of the manager with the same number."""

    agents = AGENTS

    def __init__(self, home: Path, previous: Path | None) -> None:
        self.home = home
        self.previous = previous
        self.network = None
        self.hosts = Namespaces([*COMPONENTS, *HOSTS])
        address = self.hosts.addresses
        self.postgres = PostgresPair(home, self.hosts)
        self.urls = [f"http://{address[name]}:{API}" for name in MANAGERS]
        self.openai_urls = [f"http://{address[name]}:{OPENAI}/v1" for name in PROXIES]
        etcd = "etcd://" + ",".join(f"{address[name]}:{CLIENTS}" for name in MANAGERS)
        self.env = os.environ | {
            "MOORAGE_HOME": str(home),
            # Not loopback, but a private network.
            "MOORAGE_COMMON__LINK_TLS": "off",
            "MOORAGE_ETCD__ADDRESS": etcd,
            "MOORAGE_MANAGER__DSN": self.postgres.dsn,
            "MOORAGE_MANAGER__SUSPECT_AFTER_S": str(SUSPECT_AFTER_S),
            "MOORAGE_MANAGER__LOST_GRACE_S": str(LOST_GRACE_S),
            "MOORAGE_AGENT__MANAGER": etcd,
            "MOORAGE_AGENT__INVENTORY": "fake:8xH100",
            "MOORAGE_AGENT__REPORT_INTERVAL_S": "1",
            "MOORAGE_PROXY__MANAGER": etcd,
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    async def start_everything(self, previous: tuple[str, ...] = ()) -> None:
        """``previous``: the components that start on the previous release."""
        self.hosts.open()
        for member in ETCD:
            self.start(member)

        await self.postgres.start()
        self.start(MANAGERS[0], previous=MANAGERS[0] in previous)
        key_exists = (self.home / "admin-key").exists
        await until("the first key exists", lambda: asyncio.to_thread(key_exists))
        for component in COMPONENTS[1:]:
            self.start(component, previous=component in previous)

        async def all_alive() -> bool:
            if exited := self.exited():
                name = exited[0].split()[0]
                raise AssertionError(f"exited at startup: {', '.join(exited)}\n{self.output(name)}")
            async with self.client() as client:
                agents = [agent.status for agent in await client.agents.list()]
                return agents == ["ALIVE"] * len(AGENTS) and len(await client.managers.list()) == 3

        await until("all managers and agents are there", all_alive, 120)

    def start(self, component: str, *, previous: bool = False) -> None:
        if component in ETCD:
            command = self._etcd(component)
            host = MANAGERS[ETCD.index(component)]
            env = dict(self.env)
        else:
            kind = component.partition("-")[0]
            host = component
            command = [sys.executable, "-m", "moorage", kind]
            env = self.env | self._environment(component)
            if previous:
                env = without_newer_settings(env | {"PYTHONPATH": str(self.previous)})

        with (self.home / f"{component}.out").open("ab") as log:
            self._running[component] = subprocess.Popen(
                [*self.hosts.prefix(host), *command], env=env, cwd=self.home, stdout=log, stderr=log
            )

    def _environment(self, component: str) -> dict[str, str]:
        address = self.hosts.addresses[component]
        if component in MANAGERS:
            return {
                "MOORAGE_MANAGER__LISTEN": f"{address}:{API}",
                "MOORAGE_MANAGER__LINK_LISTEN": f"{address}:{LINK}",
            }

        if component in PROXIES:
            return {
                "MOORAGE_PROXY__LISTEN": f"{address}:{OPENAI}",
                "MOORAGE_PROXY__ID": component,
                "MOORAGE_PROXY__INTERNAL_LISTEN": f"127.0.0.1:{INTERNAL}",
            }

        return {
            "MOORAGE_AGENT__ID": component,
            "MOORAGE_AGENT__ADDRESS": address,
            "MOORAGE_AGENT__PORT_RANGE": "24000-24099",
            "MOORAGE_AGENT__PROCESS_DISK": "0",  # killed components leave no mounts
        }

    def _etcd(self, member: str) -> list[str]:
        def url(name: str, port: int) -> str:
            return f"http://{self.hosts.addresses[MANAGERS[ETCD.index(name)]]}:{port}"

        return [
            *("etcd", "--name", member, "--data-dir", str(self.home / member)),
            *(
                "--listen-client-urls",
                url(member, CLIENTS),
                "--advertise-client-urls",
                url(member, CLIENTS),
            ),
            *("--listen-peer-urls", url(member, PEERS)),
            *(
                "--initial-advertise-peer-urls",
                url(member, PEERS),
                "--initial-cluster-token",
                "tests",
            ),
            *("--initial-cluster", ",".join(f"{name}={url(name, PEERS)}" for name in ETCD)),
            *("--logger", "zap", "--log-level", "error"),
        ]

    async def leader(self) -> str:
        """The leading manager, according to any of them."""
        hosts = {f"{self.hosts.addresses[name]}:{LINK}": name for name in MANAGERS}

        async def ask() -> str:
            for number in range(len(MANAGERS)):
                try:
                    async with self.client(5, number) as client:
                        for manager in await client.managers.list():
                            if manager.leader:
                                return hosts[manager.link]
                except Exception:  # noqa: BLE001 - it may be down
                    continue
            return ""

        return str(await until("a manager leads", ask))

    async def replicas_serve(self) -> None:
        async def both() -> bool:
            async with self.client() as client:
                return (await client.endpoints.get("chat")).ready == len(AGENTS)

        await until("both replicas serve", both, 90)

    def upgrade(self, component: str, *, previous: bool = False) -> None:
        """Stop a component as a service manager does, and start this release or the previous
        one."""
        process = self._running.pop(component)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        self.start(component, previous=previous)

    async def finish(self) -> None:
        for name in self.hosts.addresses:
            self.hosts.heal(name)
        await asyncio.to_thread(self.close)
        await self.postgres.close()
        self.hosts.close()
