"""The HTTP client for tenants' programs: their answers are bounded, and cannot redirect the
agent."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import moorage.agent
from moorage.agent.engines import ENGINES
from moorage.agent.engines.base import ReadinessProbe
from moorage.agent.kernel.program_client import NoAnswer, ProgramAnswer, ProgramClient
from moorage.agent.kernel.readiness import UNREACHABLE, ReadinessCheck

NO_HEADERS: dict[str, str] = {}


@dataclass
class Program:
    """Answers each request with ``response``, and then closes the connection or sends ``piece``
    endlessly."""

    response: bytes
    piece: bytes = b""
    requests: list[bytes] = field(default_factory=list)
    url: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.response)
        try:
            while self.piece:
                writer.write(self.piece)
                await writer.drain()
                await asyncio.sleep(0.001)
        except ConnectionError:
            pass

        writer.close()


@asynccontextmanager
async def running(response: bytes, piece: bytes = b"") -> AsyncIterator[Program]:
    program = Program(response, piece)
    async with await asyncio.start_server(program.answer, "127.0.0.1", 0) as server:
        program.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield program


def redirect_to(url: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {url}/secret\r\nContent-Length: 0\r\n\r\n".encode()


async def ask(
    program: Program, most_bytes: int = 1000, timeout_s: float = 20.0, whole: bool = True
) -> ProgramAnswer:
    async with ProgramClient() as client:
        return await client.ask(
            "GET",
            program.url,
            headers=NO_HEADERS,
            most_bytes=most_bytes,
            timeout_s=timeout_s,
            whole=whole,
        )


async def test_nothing_that_a_program_answers_leads_the_agent_elsewhere() -> None:
    found = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with running(found) as service, running(redirect_to(service.url)) as program:
        check = ReadinessCheck(ENGINES["custom"], (ReadinessProbe("GET", "/health"),), program.url)
        assert await check.probe_once() is False
        assert await check.read_metrics() == UNREACHABLE
        assert await check.read_max_model_len() is None
        assert (await ask(program)).status == 302
    assert len(program.requests) == 4
    assert not service.requests, "it was asked as root, by a tenant"


async def test_body_is_read_up_to_a_bound() -> None:
    async with running(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"x" * 65_536) as program:
        assert await ask(program, most_bytes=100_000) == ProgramAnswer(200, b"x" * 100_000)
        assert (await ask(program, most_bytes=10, whole=False)).body == b"x" * 10


async def test_compressed_body_stays_as_it_is() -> None:
    small = gzip.compress(bytes(50_000_000))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(small)}\r\n\r\n".encode()
    async with running(head + small) as program:
        assert (await ask(program, most_bytes=1_000_000)).body == small
    assert b"Accept-Encoding: identity" in program.requests[0]


@pytest.mark.parametrize(
    "response",
    [b"", b"HTTP/1.1 200", b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"],
)
async def test_broken_response_is_no_answer(response: bytes) -> None:
    async with running(response) as program:
        with pytest.raises(NoAnswer) as raised:
            await ask(program)
    assert raised.value.is_listening
    with pytest.raises(NoAnswer) as raised:
        await ask(program)
    assert not raised.value.is_listening, "it has ended"


async def test_endless_answer_ends_with_the_time_limit() -> None:
    async with running(b"HTTP/1.1 200 OK\r\n\r\n", b"x") as program:
        with pytest.raises(NoAnswer):
            await ask(program, most_bytes=1_000_000, timeout_s=0.5)


def test_nothing_else_asks_a_kernel_over_http() -> None:
    """Engines, kernels and logs: everything that handles a tenant's program."""
    agent = Path(moorage.agent.__file__).parent
    users = [
        str(path.relative_to(agent))
        for folder in ("kernel", "engines", "execution", "outputs", "state", "runtimes/process")
        for path in sorted((agent / folder).rglob("*.py"))
        if "aiohttp" in path.read_text().split()
    ]
    assert users == ["kernel/program_client.py"]
