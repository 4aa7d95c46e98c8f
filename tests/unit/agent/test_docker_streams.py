"""Streamed responses from an engine: complete, refused and interrupted. The engine is a fake Unix
socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage.agent.runtimes.docker.errors import EngineUnavailable, NoSuchObject, RequestRefused
from moorage.agent.runtimes.docker.streams import stream

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def read(folder: Path, *response: bytes) -> tuple[list[bytes], bytes]:
    """The pieces of the body, and the request."""
    request = b""

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal request
        request = await reader.readuntil(b"\r\n\r\n")
        for piece in response:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.close()

    async with await asyncio.start_unix_server(engine, folder / "docker.sock"):
        return [
            piece async for piece in stream(folder / "docker.sock", "/logs", {"tail": "a b"})
        ], request


async def test_body_comes_in_pieces_after_an_empty_one(tmp_path: Path) -> None:
    body = (CHUNKED[:9], CHUNKED[9:], b"3\r\none\r\n", b"3\r\ntw", b"o\r\n0\r\n\r\n")
    pieces, request = await read(tmp_path, *body)
    assert (pieces[0], b"".join(pieces)) == (b"", b"onetwo")
    assert request.startswith(b"GET /logs?tail=a+b HTTP/1.1\r\n")


async def test_body_without_length_ends_with_the_connection(tmp_path: Path) -> None:
    pieces, _ = await read(tmp_path, b"HTTP/1.1 200 OK\r\n\r\n", b"all")
    assert b"".join(pieces) == b"all"


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NoSuchObject), (409, RequestRefused), (500, RequestRefused)]
)
async def test_refusal_has_the_message_of_the_engine(
    tmp_path: Path, status: int, kind: type[RequestRefused]
) -> None:
    head = b"HTTP/1.1 %d No\r\nContent-Length: 7\r\n\r\n" % status
    with pytest.raises(kind, match="because") as refused:
        await read(tmp_path, head, b"because")
    assert refused.value.status == status


@pytest.mark.parametrize(
    "response",
    [
        (),
        (b"HTTP/1.1 200 OK\r\n",),
        (CHUNKED, b"9\r\nhalf"),
        (CHUNKED, b"3\r\none\r\n"),
        (b"this is no HTTP\r\n\r\n",),
    ],
    ids=["no response", "partial header", "partial chunk", "no last chunk", "not HTTP"],
)
async def test_interrupted_response_is_an_error(
    tmp_path: Path, response: tuple[bytes, ...]
) -> None:
    with pytest.raises(EngineUnavailable):
        await read(tmp_path, *response)


async def test_missing_socket_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable):
        async for _ in stream(tmp_path / "docker.sock", "/events", {}):
            pass


async def test_silent_engine_is_an_error_where_a_limit_is_given(tmp_path: Path) -> None:
    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + b"3\r\none\r\n")
        await reader.read()  # until the client has disconnected
        writer.close()

    async with (
        await asyncio.start_unix_server(engine, tmp_path / "docker.sock"),
        asyncio.timeout(20),
    ):
        # A busy machine does not answer within 50 ms either.
        pieces = stream(tmp_path / "docker.sock", "/logs", {}, idle_s=0.5)
        assert [await anext(pieces), await anext(pieces)] == [b"", b"one"]
        with pytest.raises(EngineUnavailable):
            await anext(pieces)
