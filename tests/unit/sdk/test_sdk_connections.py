"""HTTP connections of plain calls: connections that are kept, and connections that end early."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from moorage.common.model.spec import SessionSpec
from moorage.sdk import Client, Unreachable

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"status":"ok"}'
LAST = b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"status":"ok"}'
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"status\r\n7\r\n":"ok"}\r\n0\r\n\r\n'
HEALTH = b"GET /readyz HTTP/1.1"
JOB = SessionSpec(name="job", type="batch", command=["true"])


class ScriptedServer:
    """Gives each connection the next list of answers, one per request, and closes it after the
    last.

    The answer b"" means no answer: the connection closes when the request has arrived.
    """

    def __init__(self, *connections: list[bytes]) -> None:
        self._connections = list(connections)
        self.requests: list[bytes] = []
        self.closed = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in self._connections.pop(0):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head.split(b"\r\n")[0])
            writer.write(answer)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        self.closed.set()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, Client(f"http://127.0.0.1:{port}", timeout=10) as client:
            yield client


@pytest.mark.parametrize("answers", [[ANSWER, ANSWER], [CHUNKED, ANSWER]])
async def test_calls_share_a_connection(answers: list[bytes]) -> None:
    server = ScriptedServer(answers)
    async with server.client() as client:
        for _ in answers:
            assert (await client.health()).status == "ok"
    assert server.requests == [HEALTH, HEALTH]


def test_calls_work_on_the_event_loop_of_the_daemons() -> None:
    async def call() -> str:
        async with ScriptedServer([ANSWER]).client() as client:
            return (await client.health()).status

    assert uvloop.run(call()) == "ok"


async def test_connection_that_the_server_will_close_is_not_kept() -> None:
    server = ScriptedServer([LAST], [ANSWER])
    async with server.client() as client:
        for _ in range(2):
            assert (await client.health()).status == "ok"


async def test_kept_connection_that_was_closed_meanwhile_is_replaced() -> None:
    server = ScriptedServer([ANSWER], [ANSWER])
    async with server.client() as client:
        await client.health()
        await server.closed.wait()
        assert (await client.health()).status == "ok"


async def test_read_is_repeated_when_a_kept_connection_ends_under_it() -> None:
    server = ScriptedServer([ANSWER, b""], [ANSWER])
    async with server.client() as client:
        await client.health()
        assert (await client.health()).status == "ok"
    assert server.requests == [HEALTH] * 3


async def test_write_is_not_repeated() -> None:
    server = ScriptedServer([ANSWER, b""], [ANSWER])
    async with server.client() as client:
        await client.health()
        with pytest.raises(Unreachable, match="closed the connection in mid-answer"):
            await client.sessions.create(JOB)
    assert server.requests == [HEALTH, b"POST /v1/sessions HTTP/1.1"]


@pytest.mark.parametrize("answer", [b"", ANSWER[:-3], ANSWER[:20]])
async def test_connection_that_ends_early_is_reported(answer: bytes) -> None:
    async with ScriptedServer([answer]).client() as client:
        with pytest.raises(Unreachable, match="closed the connection in mid-answer"):
            await client.health()


async def test_server_of_another_protocol_is_reported() -> None:
    async with ScriptedServer([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"]).client() as client:
        with pytest.raises(Unreachable, match=r"no manager answers at .*status line"):
            await client.health()
