"""Hostile agents that answer requests about code, and hostile clients of WebSockets: no answer and
no frame causes a fault in the manager, and other clients are served."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from moorage.common.aio.clock import SystemClock
from moorage.common.model.commands import PROTOCOL, ExecEnd
from tests.examples import examples

from .served_api import ADMIN_KEY, Api, serving_api

RUNS = "/v1/sessions/dev/executions"
# Kept connections would be server tasks.
CLOSE = {"Connection": "close"}
KEY = {"Authorization": f"Bearer {ADMIN_KEY}"}
VALUES = st.sampled_from(
    [
        *(
            None,
            True,
            -1,
            0,
            1,
            1 << 70,
            1.5,
            float("nan"),
            float("inf"),
            "",
            "x",
            "\0",
            "\ud800",
            "stream",
        ),
        *(
            [],
            [[]],
            {},
            {"type": "x"},
            {"type": "stream", "text": "\udfff"},
            {"type": None},
            {"type": "\r\n"},
        ),
    ]
)
LINES = st.dictionaries(st.sampled_from(["seq", "item", "x"]), VALUES, max_size=3).map(
    lambda found: json.dumps(found).encode()
)
WRONG = st.binary(max_size=30) | st.sampled_from(
    [
        *(
            b"[" * 100_000,
            b"1" * 5000,
            b"null",
            b"\xff\xfe",
            b"\xed\xa0\x80",
            b"{}",
            b'"\\ud800"',
            b"",
        ),
    ]
)
ANSWERS = st.lists(LINES | WRONG, max_size=4).map(b"\n".join) | st.builds(
    ExecEnd,
    exit_code=st.sampled_from([0, 1, 126, 127, -9, 1 << 31]),
    code=st.sampled_from(["", "conflict", "not-found", "internal", "\0"]),
    detail=st.sampled_from(["", "x\0", "é" * 500, "\r\nX: 1"]),
)


@pytest.fixture(scope="module")
def served(shared_database: str) -> Iterator[tuple[asyncio.Runner, Api]]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        api = runner.run(stack.enter_async_context(serving_api(shared_database, SystemClock())))
        runner.run(
            api.request(
                "POST", "/v1/sessions", headers=CLOSE, json={"name": "dev", "type": "interactive"}
            )
        )

        try:
            yield runner, api
        finally:
            runner.run(stack.aclose())


async def asked(api: Api) -> list[int]:
    """The statuses of every request that an agent answers."""
    statuses = []
    for method, path, body in (
        ("POST", RUNS, {"code": "1"}),
        ("GET", f"{RUNS}/r1", None),
        ("POST", f"{RUNS}/r1/input", {"text": "x"}),
        ("POST", f"{RUNS}/completions", {"code": "1"}),
        ("GET", "/v1/sessions/dev/code-kernels", None),
        ("GET", f"{RUNS}/r1/events", None),
    ):
        with suppress(aiohttp.ClientPayloadError):  # it breaks off
            async with api.http.request(method, path, json=body, headers=KEY | CLOSE) as response:
                statuses.append(response.status)
                await response.read()

    try:
        async with api.http.ws_connect(f"{RUNS}/r1/events", headers=KEY) as socket:
            async for _ in socket:
                pass
    except aiohttp.WSServerHandshakeError as error:
        statuses.append(error.status)

    return statuses


def test_no_answer_of_an_agent_is_a_fault(served: tuple[asyncio.Runner, Api]) -> None:
    runner, api = served

    @examples(60)
    @given(ANSWERS)
    @example(b'{"seq": 1, "item": {"type": "stream", "text": "\xed\xa0\x80"}}\n')
    @example('{"seq": 1, "item": {"type": "x"}}'.encode("utf-16") + b"\n")
    @example(b'{"seq": "x", "item": {"type": "stream"}}\n')
    def run(answer: bytes | ExecEnd) -> None:
        operations = ("execute", "read", "input", "complete", "kernels", "follow")
        api.execs.answers = dict.fromkeys(operations, answer)
        with capture_logs() as logs:
            statuses = runner.run(asked(api))
        assert [line for line in logs if line["event"] == "request failed"] == []
        assert [status for status in statuses if status >= 500 and status != 503] == []

    run()


def _frame(first: int, length: int, given: int, payload: bytes, *, masked: bool) -> bytes:
    """``given``: the length that the frame states, which may differ from the payload's."""
    bit = 0x80 if masked else 0
    if given == 0:
        head = bytes([first, bit | min(length, 125)])
    elif given == 1:
        head = bytes([first, bit | 126]) + (length & 0xFFFF).to_bytes(2)
    else:
        head = bytes([first, bit | 127]) + length.to_bytes(8)
    return head + (b"\0\0\0\0" if masked else b"") + payload


FIRST = st.sampled_from(
    [0x81, 0x82, 0x82, 0x82, 0x01, 0x80, 0x88, 0x89, 0x8A, 0x83, 0xC2, 0xF2, 0xFF, 0x00]
)
PAYLOADS = st.sampled_from(
    [
        *(
            b"",
            b"\0",
            b"\0hello",
            b"\4{}",
            b'\4{"rows": 1e9, "cols": -1}',
            b"\4[" + b"[" * 100,
            b"\xff\0",
        ),
        *(
            b"\xff\xff",
            b"\1x",
            b"\3x",
            b"\x7f",
            b"\xed\xa0\x80",
            b"\x03\xe8" + b"x" * 123,
            b"\x00\x01",
            b"{}",
        ),
    ]
)
FRAMES = st.lists(
    st.builds(
        lambda first, payload, exact, given, other, masked: _frame(
            first, len(payload) if exact else other, given, payload, masked=masked
        ),
        FIRST,
        PAYLOADS,
        st.sampled_from([True, True, True, False]),
        st.integers(0, 2),
        st.sampled_from([0, 1, 200, 65_536, 1 << 31, (1 << 63) - 1, (1 << 64) - 1]),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=4,
)
SPEC = json.dumps({"command": ["x"], "stdin": True}).encode()
FIRST_MESSAGES = st.sampled_from([_frame(0x81, len(SPEC), 0, SPEC, masked=True)] * 3 + [b""])


async def sent(api: Api, frames: bytes) -> None:
    """Connect to a command, send ``frames``, and close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    head = (
        "GET /v1/sessions/dev/exec HTTP/1.1\r\nHost: localhost\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(b'0' * 16).decode()}\r\n"
        f"Sec-WebSocket-Protocol: {PROTOCOL}\r\nAuthorization: Bearer {ADMIN_KEY}\r\n\r\n"
    )
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert answer.startswith(b"HTTP/1.1 101"), answer
    writer.write(frames)

    with suppress(OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(0.05):
            while await reader.read(65_536):
                pass

    writer.transport.abort()


def test_no_frame_of_a_client_is_a_fault(served: tuple[asyncio.Runner, Api]) -> None:
    runner, api = served
    tasks: set[asyncio.Task[Any]] = set()

    async def run_one(frames: bytes) -> None:
        await sent(api, frames)
        response, _ = await api.request("GET", "/v1/sessions", headers=CLOSE)
        assert response.status == 200
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks() - tasks) > 1:  # the one that waits
                await asyncio.sleep(0.005)

    async def idle() -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks()

    tasks = runner.run(idle())

    @examples(60)
    @given(FIRST_MESSAGES, FRAMES)
    def run(first: bytes, frames: list[bytes]) -> None:
        with capture_logs() as logs:
            runner.run(run_one(first + b"".join(frames)))
        assert [line for line in logs if line["log_level"] == "error"] == []
        del api.execs.opened[:], api.execs.requests[:]

    run()
