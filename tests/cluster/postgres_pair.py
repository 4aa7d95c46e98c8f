"""A primary and a synchronous standby on two separate hosts. The standby can be promoted, and the
former primary is then made its standby."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import asyncpg

from moorage.manager.postgres.binaries import find_binaries, server_user
from tests.relay import Relay
from tests.store.test_read_only import promote

from .namespaces import Namespaces

HOSTS = ("postgres-1", "postgres-2")
PORT = 5432
_FLAGS = {
    "listen_addresses": "*",
    "unix_socket_directories": "",
    "max_connections": "400",
    "fsync": "off",
    "wal_level": "replica",
}
_STREAMS = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"


class PostgresPair:
    """``primary``: its host. Important commits wait for the standby, so a promotion loses none. The
    standby streams through ``relay``, which listens on the tests' own address and may delay it."""

    def __init__(self, home: Path, network: Namespaces) -> None:
        self._home = home
        self._network = network
        self._user = server_user()
        self._binaries = find_binaries(None, self._user, major=None).bin_dir
        self.primary, self.standby = HOSTS
        self.relay: Relay | None = None
        self._relay_server: asyncio.Server | None = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def dsn(self) -> str:
        hosts = ",".join(f"{self._network.addresses[host]}:{PORT}" for host in HOSTS)
        return f"postgresql://moorage@{hosts}/moorage"

    def dsn_of(self, host: str, database: str = "moorage") -> str:
        return f"postgresql://moorage@{self._network.addresses[host]}:{PORT}/{database}"

    async def start(self) -> None:
        await asyncio.to_thread(self._make_first)
        admin = await _connect(self.dsn_of(self.primary, "postgres"))
        await admin.execute("CREATE DATABASE moorage")
        await admin.close()
        await self.make_standby()

    def _make_first(self) -> None:
        data = self._directory(self.primary)
        self._run(
            "initdb", "-D", str(data), "-U", "moorage", "-A", "trust", "--no-sync", "-E", "UTF8"
        )
        with (data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {self._network.network} trust\n")
            file.write(f"host replication all {self._network.network} trust\n")
        self._start(self.primary)

    async def make_standby(self) -> None:
        """Make a standby of the primary, on the other host. From then on commits wait for it."""
        target = f"{self._network.addresses[self.primary]}:{PORT}"
        await self._stop_relay()
        self.relay = Relay(target)
        self._relay_server = await asyncio.start_server(self.relay.accept, self._network.own, 0)
        port = self._relay_server.sockets[0].getsockname()[1]
        await asyncio.to_thread(self._copy_primary, port)
        admin = await _connect(self.dsn_of(self.primary))
        async with asyncio.timeout(60):
            while not await admin.fetchval(_STREAMS):
                await asyncio.sleep(0.1)

        await admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await admin.execute("SELECT pg_reload_conf()")
        await admin.close()

    def _copy_primary(self, relay_port: int) -> None:
        data = self._directory(self.standby)
        source = ("-h", self._network.own, "-p", str(relay_port), "-U", "moorage")
        self._run(
            "pg_basebackup", *source, "-D", str(data), "-c", "fast", "-R", "-X", "stream", "-N"
        )
        with (data / "postgresql.auto.conf").open("a") as file:
            file.write("synchronous_standby_names = ''\n")
        self._start(self.standby)

    def kill_primary(self) -> None:
        """Send SIGKILL: nothing is written or sent after that. Its children exit as soon as they
        notice."""
        process = self._running.pop(self.primary)
        process.send_signal(signal.SIGKILL)
        process.wait()

    async def promote(self) -> None:
        """Return once the standby accepts writes."""
        await promote(self.dsn_of(self.standby))
        self.primary, self.standby = self.standby, self.primary

    async def close(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGQUIT)
        for process in self._running.values():
            await asyncio.to_thread(process.wait, 20)
        await self._stop_relay()

    async def _stop_relay(self) -> None:
        if self._relay_server is not None and self.relay is not None:
            self._relay_server.close()
            await self.relay.close()

    def _directory(self, host: str) -> Path:
        path = self._home / host
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(path, self._user.uid, self._user.gid)
        return path

    def _start(self, host: str) -> None:
        flags = [flag for name, value in _FLAGS.items() for flag in ("-c", f"{name}={value}")]
        command = [
            str(self._binaries / "postgres"),
            "-D",
            str(self._home / host),
            "-p",
            str(PORT),
            *flags,
        ]
        with (self._home / f"{host}.log").open("ab") as log:
            self._running[host] = subprocess.Popen(
                [*self._network.prefix(host), *self._as_user(), *command],
                stdout=log,
                stderr=log,
                **self._environment(),
            )

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user(), str(self._binaries / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=120, **self._environment())

    def _as_user(self) -> tuple[str, ...]:
        if self._user is None:
            return ()
        return (
            "setpriv",
            f"--reuid={self._user.uid}",
            f"--regid={self._user.gid}",
            "--clear-groups",
        )

    def _environment(self) -> dict[str, Any]:
        return {"env": {"LC_ALL": "C", "PATH": os.environ["PATH"]}, "cwd": "/"}


async def _connect(dsn: str) -> asyncpg.Connection:
    async with asyncio.timeout(60):
        while True:
            try:
                return await asyncpg.connect(dsn)
            except (OSError, asyncpg.PostgresError):
                await asyncio.sleep(0.1)
