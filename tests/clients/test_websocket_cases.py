"""WebSocket cases by the sections of RFC 6455 that the test suite of Autobahn also has: the same
frames to the engine directly, and through each data plane, as realtime API and as a service port.

The suite itself needs Python 2, so these are cases of our own. Only differences fail: a proxy must
neither repair nor break what its engine answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.clients.checks import Place
from tests.clients.results import Results
from tests.conformance.planes.client import Client
from tests.conformance.planes.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    OFFER,
    PING,
    PONG,
    TEXT,
    frame,
    read_frame,
)

pytestmark = [pytest.mark.clients, pytest.mark.asyncio(loop_scope="module")]

MASK = b"\x01\xfe\x00\x80"
WAIT_S = 20.0
# A frame that ends every case which is still open: the answer to it is the last one.
GOODBYE = frame(CLOSE, b"\x03\xe8", mask=MASK)
# (opcode, payload, final) for each frame, and how the connection ended.
Transcript = tuple[tuple[tuple[int, bytes, bool], ...], str]


def text(payload: bytes, *, opcode: int = TEXT, fin: bool = True, reserved: int = 0) -> bytes:
    return frame(opcode, payload, mask=MASK, fin=fin, reserved=reserved)


def _framing() -> Iterator[tuple[str, bytes]]:
    for size in (0, 1, 125, 126, 127, 128, 65_535, 65_536, 1 << 20):
        yield f"1 framing: text of {size}", text(b"*" * size)
        yield f"1 framing: binary of {size}", text(b"\xfe" * size, opcode=BINARY)


def _pings() -> Iterator[tuple[str, bytes]]:
    for payload in (b"", b"hello", b"\x00\xff\xfe\xfd", b"\xfe" * 125, b"\xfe" * 126):
        yield f"2 ping of {len(payload)}", text(payload, opcode=PING)
    yield "2 pong that nobody asked for", text(b"x", opcode=PONG)
    yield "2 pong and ping", text(b"x", opcode=PONG) + text(b"y", opcode=PING)
    yield "2 ten pings", b"".join(text(b"%d" % number, opcode=PING) for number in range(10))


def _reserved() -> Iterator[tuple[str, bytes]]:
    for bits in range(1, 8):
        yield f"3 reserved bits {bits}", text(b"hello", reserved=bits)
        yield f"3 reserved bits {bits} of a ping", text(b"hello", opcode=PING, reserved=bits)
        yield f"3 reserved bits {bits} after a text", text(b"a") + text(b"b", reserved=bits)


def _opcodes() -> Iterator[tuple[str, bytes]]:
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        yield f"4 opcode {opcode}", text(b"", opcode=opcode)
        yield f"4 opcode {opcode} after a text", text(b"a") + text(b"x", opcode=opcode)


def _fragments() -> Iterator[tuple[str, bytes]]:
    first = text(b"frag", fin=False)
    middle = text(b"men", opcode=CONTINUATION, fin=False)
    last = text(b"ts", opcode=CONTINUATION)
    ping = text(b"ping", opcode=PING)
    yield "5 fragments", first + middle + last
    yield "5 ping between fragments", first + ping + last
    yield "5 fragmented ping", text(b"a", opcode=PING, fin=False) + last
    yield "5 fragmented pong", text(b"a", opcode=PONG, fin=False) + last
    yield "5 continuation of nothing", last + text(b"a")
    yield "5 open continuation of nothing", middle + text(b"a")
    yield "5 text within fragments", first + text(b"new")
    yield "5 empty fragments", text(b"", fin=False) + text(b"", opcode=CONTINUATION)
    yield "5 close within fragments", first + GOODBYE
    pieces = (text(b"x", opcode=CONTINUATION, fin=False) for _ in range(500))
    yield "5 five hundred fragments", text(b"x", fin=False) + b"".join(pieces) + last


def _encodings() -> Iterator[tuple[str, bytes]]:
    for name, payload in {
        "two bytes": "é".encode(),
        "three bytes": "κόσμε ☃".encode(),
        "four bytes": "😀".encode(),
        "end of the range": "\U0010ffff".encode(),
        "NUL": b"a\x00b",
        "byte order mark": "\ufeffa".encode(),
        "lone continuation": b"\x80",
        "truncated": b"\xc3",
        "overlong slash": b"\xc0\xaf",
        "overlong NUL": b"\xe0\x80\x80",
        "surrogate": b"\xed\xa0\x80",
        "beyond the range": b"\xf4\x90\x80\x80",
        "five bytes": b"\xf8\x88\x80\x80\x80",
        "invalid byte": b"a\xffb",
    }.items():
        yield f"6 UTF-8, {name}", text(payload)
        halves = text(payload[:1], fin=False) + text(payload[1:], opcode=CONTINUATION)
        yield f"6 UTF-8 in fragments, {name}", halves


def _closes() -> Iterator[tuple[str, bytes]]:
    yield "7 close without a code", text(b"", opcode=CLOSE)
    yield "7 close with half a code", text(b"\x03", opcode=CLOSE)
    yield "7 text after the close", GOODBYE + text(b"late")
    yield "7 ping after the close", GOODBYE + text(b"late", opcode=PING)
    yield "7 two closes", GOODBYE + GOODBYE
    yield "7 longest reason", text(b"\x03\xe8" + b"r" * 123, opcode=CLOSE)
    yield "7 reason too long", text(b"\x03\xe8" + b"r" * 124, opcode=CLOSE)
    yield "7 reason that is not UTF-8", text(b"\x03\xe8\xff", opcode=CLOSE)
    for code in (
        *(1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999),
        *(0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535),
    ):
        yield f"7 close with {code}", text(code.to_bytes(2, "big"), opcode=CLOSE)


def _limits() -> Iterator[tuple[str, bytes]]:
    large = b"*" * (4 << 20)
    yield "9 text of 4 MiB", text(large)
    yield "9 binary of 4 MiB", text(large, opcode=BINARY)
    step = 1 << 16
    rest = (
        text(large[at : at + step], opcode=CONTINUATION, fin=at + step == len(large))
        for at in range(step, len(large), step)
    )
    yield "9 text of 4 MiB in fragments", text(large[:step], fin=False) + b"".join(rest)
    yield "9 thousand messages", b"".join(text(b"%d" % number) for number in range(1000))


CASES = dict(
    (
        *_framing(),
        *_pings(),
        *_reserved(),
        *_opcodes(),
        *_fragments(),
        *_encodings(),
        *_closes(),
        *_limits(),
    )
)


async def exchanged(address: tuple[str, int], request: bytes, sent: bytes) -> Transcript:
    """The frames that answer ``sent``, until the connection ends."""
    client = await Client.connect(address)
    frames = []
    sending = None
    try:
        async with asyncio.timeout(WAIT_S):
            client.send(request)
            assert (await client.head("GET")).status == 101
            sending = asyncio.create_task(_send(client, sent + GOODBYE))
            while True:
                read = await read_frame(client.reader)
                frames.append((read.opcode, read.payload, read.fin))
    except asyncio.IncompleteReadError as end:
        return tuple(frames), f"ends within {end.partial!r}" if end.partial else "ends"
    except ConnectionError:
        return tuple(frames), "ends"
    finally:
        if sending is not None:
            sending.cancel()
        client.close()


async def _send(client: Client, data: bytes) -> None:
    try:
        await client.send_slowly(data, 1 << 16)
    except ConnectionError:
        pass  # the answer so far is what counts


def _request(place: Place, kind: str) -> tuple[tuple[str, int], bytes]:
    address = urlsplit(place.base)
    assert address.hostname is not None
    assert address.port is not None
    path, key = f"/v1/realtime?model={place.model}", place.key
    if kind == "service port":
        path, key = f"{urlsplit(place.app).path}/echo", place.token

    head = (f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {key}", *OFFER)
    return (address.hostname, address.port), "\r\n".join((*head, "", "")).encode()


@pytest.mark.parametrize("kind", ["realtime", "service port"])
@pytest.mark.timeout(300)
async def test_same_as_directly(everywhere: list[Place], results: Results, kind: str) -> None:
    differences = []
    for name, sent in CASES.items():
        directly, *others = await asyncio.gather(
            *(exchanged(*_request(place, kind), sent) for place in everywhere)
        )
        assert directly[0], f"{name}: the engine does not answer"
        for place, through in zip(everywhere[1:], others, strict=True):
            results.judged(f"WebSocket, {kind}", name, place.name, same=through == directly)
            if through != directly:
                differences.append(
                    f"{name}, {place.name}:\n  directly: {str(directly)[-300:]}\n"
                    f"  through:  {str(through)[-300:]}"
                )

    assert not differences, "\n".join(differences)
