"""An engine's long answers, whole, refused and broken off; the engine is a socket of the test's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage.agent.runtimes.docker.errors import EngineUnavailable, NoSuchObject, RequestRefused
from moorage.agent.runtimes.docker.streams import stream

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def read(folder: Path, *answer: bytes) -> tuple[list[bytes], bytes]:
    """The pieces of the body, and what was asked."""
    asked = b""

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        for piece in answer:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.close()

    async with await asyncio.start_unix_server(engine, folder / "docker.sock"):
        return [piece async for piece in stream(folder / "docker.sock", "/logs", {"tail": "a b"})], asked


async def test_it_comes_piece_by_piece_after_an_empty_one(tmp_path: Path) -> None:
    body = (CHUNKED[:9], CHUNKED[9:], b"3\r\none\r\n", b"3\r\ntw", b"o\r\n0\r\n\r\n")
    pieces, asked = await read(tmp_path, *body)
    assert (pieces[0], b"".join(pieces)) == (b"", b"onetwo")
    assert asked.startswith(b"GET /logs?tail=a+b HTTP/1.1\r\n")


async def test_a_body_without_a_length_ends_with_the_connection(tmp_path: Path) -> None:
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
    "answer",
    [
        (),
        (b"HTTP/1.1 200 OK\r\n",),
        (CHUNKED, b"9\r\nhalf"),
        (CHUNKED, b"3\r\none\r\n"),
        (b"this is no HTTP\r\n\r\n",),
    ],
    ids=["nothing", "half a head", "half a chunk", "no last chunk", "something else"],
)
async def test_what_breaks_off_is_no_end(tmp_path: Path, answer: tuple[bytes, ...]) -> None:
    with pytest.raises(EngineUnavailable):
        await read(tmp_path, *answer)


async def test_no_engine_there(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable):
        async for _ in stream(tmp_path / "docker.sock", "/events", {}):
            pass
