"""Postgres goes away under a manager that is being asked: 503 meanwhile, nothing acknowledged is lost, and
whoever asks again under the same key gets one session."""

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

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.manager import Manager
from moorage.manager.postgres import EmbeddedPostgres

BODY = {"command": ["x"], "resources": {"cpu": 1}}
CALLERS = 8


@dataclass
class Asking:
    """Callers that create under a key each, again and again until an answer comes."""

    http: aiohttp.ClientSession
    acknowledged: dict[str, str] = field(default_factory=dict)
    refusals: list[tuple[int, str | None]] = field(default_factory=list)
    enough: int = 40

    async def one(self, caller: int) -> None:
        number = 0
        while len(self.acknowledged) < self.enough:
            key = f"{caller}-{number}"
            number += 1
            while key not in self.acknowledged:
                await self._ask(key)

    async def _ask(self, key: str) -> None:
        headers = {"Idempotency-Key": key}
        async with self.http.post("/v1/sessions", json=BODY, headers=headers) as answer:
            if answer.status == 201:
                self.acknowledged[key] = (await answer.json())["id"]
            else:
                self.refusals.append((answer.status, answer.headers.get("Retry-After")))
                await asyncio.sleep(0.02)  # a polite client would wait longer

    async def until_refused(self) -> None:
        async with asyncio.timeout(30):
            while not self.refusals:
                await asyncio.sleep(0.005)

    async def until(self, acknowledged: int) -> None:
        async with asyncio.timeout(30):
            while len(self.acknowledged) < acknowledged:
                await asyncio.sleep(0.005)


@pytest_asyncio.fixture
async def postgres(home: Path) -> AsyncIterator[EmbeddedPostgres]:
    """One of its own, with all its promises of durability."""
    async with EmbeddedPostgres(home / "pg", clock=SystemClock()) as made:
        yield made


@pytest_asyncio.fixture
async def asking(postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Asking]:
    settings = ManagerSettings(dsn=postgres.dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
    async with Manager(settings, clock=SystemClock(), link_token="link", home=tmp_path) as manager:
        headers = {"Authorization": f"Bearer {manager.first_key}"}
        async with aiohttp.ClientSession(f"http://{manager.api_address}", headers=headers) as http:
            yield Asking(http)


async def test_creates_survive_a_database_that_is_killed(postgres: EmbeddedPostgres, asking: Asking) -> None:
    asking.enough = sys.maxsize
    async with asyncio.TaskGroup() as group:
        for caller in range(CALLERS):
            group.create_task(asking.one(caller))
        await asking.until(40)
        assert postgres.pid is not None
        os.kill(postgres.pid, signal.SIGKILL)
        await asking.until_refused()  # its processes go on for a moment, until they see that it is dead
        asking.enough = len(asking.acknowledged) + 100
        await asking.until(asking.enough)
    assert set(asking.refusals) == {(503, "2")}
    made: set[str] = set()
    cursor = ""
    while cursor is not None:
        async with asking.http.get(f"/v1/sessions?limit=500{cursor and '&cursor=' + cursor}") as answer:
            page = await answer.json()
        made |= {item["id"] for item in page["items"]}
        cursor = page["next"]
    assert made == set(asking.acknowledged.values()), "what was acknowledged is there, and nothing else"
    assert len(made) == len(asking.acknowledged), "one session for each key"
    for key, session in list(asking.acknowledged.items())[:5]:
        async with asking.http.post("/v1/sessions", json=BODY, headers={"Idempotency-Key": key}) as answer:
            assert (answer.headers["Idempotent-Replayed"], (await answer.json())["id"]) == ("true", session)


class Wire:
    """The way to Postgres, which a test can cut and mend."""

    def __init__(self, host: str, port: int) -> None:
        self._target, self.port = (host, port), 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        self._open |= {writer, back}
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer), return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
        writer.close()


async def test_all_that_needs_the_database_says_503_until_it_is_back(
    empty_database: str, tmp_path: Path
) -> None:
    at = urlsplit(empty_database)
    wire = Wire(at.hostname or "", at.port or 0)
    await wire.mend()
    dsn = urlunsplit(at._replace(netloc=at.netloc.replace(f":{at.port}", f":{wire.port}")))
    settings = ManagerSettings(dsn=dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
    asked = [("GET", "/v1/agents"), ("GET", "/v1/sessions"), ("POST", "/v1/sessions"), ("GET", "/readyz")]
    async with Manager(settings, clock=SystemClock(), link_token="link", home=tmp_path) as manager:
        headers = {"Authorization": f"Bearer {manager.first_key}"}
        async with aiohttp.ClientSession(f"http://{manager.api_address}", headers=headers) as http:

            async def answers() -> list[tuple[int, str | None]]:
                found = []
                for method, path in asked:
                    body = {"json": BODY} if method == "POST" else {}
                    async with http.request(method, path, **body) as answer:
                        await answer.read()
                        found.append((answer.status, answer.headers.get("Retry-After")))
                return found

            assert [status for status, _ in await answers()] == [200, 200, 201, 200]
            wire.cut()
            assert await answers() == [(503, "2")] * len(asked)
            async with http.get("/livez") as answer:
                assert answer.status == 200, "it is the database that is away, not the manager"
            await wire.mend()
            async with asyncio.timeout(20):
                while [status for status, _ in await answers()] != [200, 200, 201, 200]:
                    await asyncio.sleep(0.05)
    wire.cut()
