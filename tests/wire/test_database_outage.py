"""Database outages under load: the API responds with 503, loses nothing acknowledged, and creates
one session for each idempotency key."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import pytest_asyncio
from tests.databases import copied_postgres

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.manager import Manager
from moorage.manager.postgres import EmbeddedPostgres

BODY = {"command": ["x"], "resources": {"cpu": 1}}
CALLERS = 8


@dataclass
class Load:
    """Callers that create sessions, and repeat each request under its idempotency key until it
    succeeds.

    ``enough``: the number of created sessions after which they stop."""

    http: aiohttp.ClientSession
    acknowledged: dict[str, str] = field(default_factory=dict)
    refusals: list[tuple[int, str | None]] = field(default_factory=list)
    enough: int = 40

    async def call(self, caller: int) -> None:
        number = 0
        while len(self.acknowledged) < self.enough:
            key = f"{caller}-{number}"
            number += 1
            while key not in self.acknowledged:
                await self._create(key)

    async def _create(self, key: str) -> None:
        headers = {"Idempotency-Key": key}
        async with self.http.post("/v1/sessions", json=BODY, headers=headers) as response:
            if response.status == 201:
                self.acknowledged[key] = (await response.json())["id"]
            else:
                self.refusals.append((response.status, response.headers.get("Retry-After")))
                # shorter than Retry-After, for more requests during the outage
                await asyncio.sleep(0.02)

    async def until_refused(self) -> None:
        async with asyncio.timeout(30):
            while not self.refusals:
                await asyncio.sleep(0.005)

    async def until(self, acknowledged: int) -> None:
        async with asyncio.timeout(30):
            while len(self.acknowledged) < acknowledged:
                await asyncio.sleep(0.005)


@pytest_asyncio.fixture
async def postgres(stopped_postgres: Path, home: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A separate server, with fsync and full durability."""
    directory = copied_postgres(stopped_postgres, home / "pg")
    async with EmbeddedPostgres(directory, clock=SystemClock()) as server:
        yield server


@pytest_asyncio.fixture
async def load(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Load]:
    settings = ManagerSettings(dsn=postgres.dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
    async with Manager(settings, clock=SystemClock(), link_token="link", home=tmp_path) as manager:
        headers = {"Authorization": f"Bearer {manager.first_key}"}
        async with aiohttp.ClientSession(f"http://{manager.api_address}", headers=headers) as http:
            yield Load(http)


async def test_created_sessions_survive_a_killed_database(
    postgres: EmbeddedPostgres, load: Load
) -> None:
    load.enough = sys.maxsize
    async with asyncio.TaskGroup() as group:
        for caller in range(CALLERS):
            group.create_task(load.call(caller))

        await load.until(40)
        assert postgres.pid is not None
        os.kill(postgres.pid, signal.SIGKILL)

        # its backends keep running until they notice that the postmaster is dead
        await load.until_refused()
        load.enough = len(load.acknowledged) + 100
        await load.until(load.enough)

    assert set(load.refusals) == {(503, "2")}
    listed: set[str] = set()
    cursor = ""
    while cursor is not None:
        async with load.http.get(
            f"/v1/sessions?limit=500{cursor and '&cursor=' + cursor}"
        ) as response:
            page = await response.json()

        listed |= {item["id"] for item in page["items"]}
        cursor = page["next"]

    assert listed == set(load.acknowledged.values()), "exactly the acknowledged sessions exist"
    assert len(listed) == len(load.acknowledged), "one session for each key"
    for key, session in list(load.acknowledged.items())[:5]:
        async with load.http.post(
            "/v1/sessions", json=BODY, headers={"Idempotency-Key": key}
        ) as response:
            assert (response.headers["Idempotent-Replayed"], (await response.json())["id"]) == (
                "true",
                session,
            )


class TcpLink:
    """A TCP forwarder to Postgres that a test can close and reopen."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(*self._target)
        self._open |= {writer, upstream}
        await asyncio.gather(
            self._pump(reader, upstream),
            self._pump(upstream_reader, writer),
            return_exceptions=True,
        )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
        writer.close()


async def test_requests_get_503_during_an_outage_and_recover(
    migrated_database: str, tmp_path: Path
) -> None:
    at = urlsplit(migrated_database)
    link = TcpLink(at.hostname or "", at.port or 0)
    await link.open()
    dsn = urlunsplit(at._replace(netloc=at.netloc.replace(f":{at.port}", f":{link.port}")))
    settings = ManagerSettings(dsn=dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
    requests = [
        ("GET", "/v1/agents"),
        ("GET", "/v1/sessions"),
        ("POST", "/v1/sessions"),
        ("GET", "/readyz"),
    ]
    async with Manager(settings, clock=SystemClock(), link_token="link", home=tmp_path) as manager:
        headers = {"Authorization": f"Bearer {manager.first_key}"}
        async with aiohttp.ClientSession(f"http://{manager.api_address}", headers=headers) as http:

            async def responses() -> list[tuple[int, str | None]]:
                found = []
                for method, path in requests:
                    body = {"json": BODY} if method == "POST" else {}
                    async with http.request(method, path, **body) as response:
                        await response.read()
                        found.append((response.status, response.headers.get("Retry-After")))
                return found

            assert [status for status, _ in await responses()] == [200, 200, 201, 200]
            link.close()
            assert await responses() == [(503, "2")] * len(requests)

            async with http.get("/livez") as response:
                assert response.status == 200, (
                    "the manager is alive while the database is unavailable"
                )

            await link.open()
            async with asyncio.timeout(20):
                while [status for status, _ in await responses()] != [200, 200, 201, 200]:
                    await asyncio.sleep(0.05)

    link.close()
