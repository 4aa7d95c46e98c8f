"""The WebSocket of a command in a session."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest

from moorage.common.model.commands import PROTOCOL, Channel, ExecEnd, frame, unframe

from .served_api import ADMIN_KEY, Api, check_problem

AUTH = {"Authorization": f"Bearer {ADMIN_KEY}"}
SPEC = {"command": ["cat"], "stdin": True}


@asynccontextmanager
async def exec_in(api: Api, first: Any = SPEC) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    await api.request("POST", "/v1/sessions", json={"name": "dev", "type": "interactive"})
    async with api.http.ws_connect(
        "/v1/sessions/dev/exec", headers=AUTH, protocols=(PROTOCOL,)
    ) as ws:
        if isinstance(first, bytes):
            await ws.send_bytes(first)
        else:
            await ws.send_str(first if isinstance(first, str) else json.dumps(first))
        yield ws


async def read(ws: aiohttp.ClientWebSocketResponse) -> tuple[Channel, bytes]:
    async with asyncio.timeout(10):
        return unframe(await ws.receive_bytes())


async def test_input_output_resize_and_exit_code(api: Api) -> None:
    async with exec_in(api, SPEC | {"tty": True, "size": {"rows": 3, "cols": 4}}) as ws:
        assert ws.protocol == PROTOCOL
        await ws.send_bytes(frame(Channel.STDIN, b"\xff\0"))
        assert await read(ws) == (Channel.STDOUT, b"\xff\0")
        await ws.send_bytes(frame(Channel.RESIZE, b'{"rows": 50, "cols": 200}'))
        await ws.send_bytes(frame(Channel.CLOSE, bytes((Channel.STDIN,))))
        channel, end = await read(ws)
        assert channel is Channel.STATUS
        assert ExecEnd.model_validate_json(end) == ExecEnd(exit_code=7)
        assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE

    [(name, spec, actor)] = api.execs.requests
    assert (name, spec.command, spec.size.cols, actor) == ("dev", ["cat"], 4, "key:root")
    assert api.execs.opened[0].resizes == ["50x200"]


async def test_refusals_before_the_upgrade(api: Api) -> None:
    for name in ("dev", "stopped"):
        await api.request("POST", "/v1/sessions", json={"name": name, "type": "interactive"})

    for path, key, status, code in (
        ("dev", None, 401, "unauthenticated"),
        ("none", ADMIN_KEY, 404, "not-found"),
        ("stopped", ADMIN_KEY, 409, "conflict"),
        ("dev", ADMIN_KEY, 422, "invalid-input"),  # no WebSocket
    ):
        response, problem = await api.request("GET", f"/v1/sessions/{path}/exec", key=key)
        check_problem(response, problem, status, code)

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await api.http.ws_connect("/v1/sessions/stopped/exec", headers=AUTH)

    assert refused.value.status == 409


@pytest.mark.parametrize(
    ("first", "then", "detail"),
    [
        (b"\0x", None, "first message"),
        ("{", None, "message is invalid"),
        ({"command": []}, None, "command"),
        ({"command": ["x"], "shell": True}, None, "shell"),
        ({"command": ["x"], "env": {"MOORAGE_X": "1"}}, None, "MOORAGE_"),
        (SPEC, b"", "has no channel"),
        (SPEC, b"\x09x", "9 is not a valid Channel"),
        (SPEC, frame(Channel.STDOUT, b"x"), "cannot send on channel STDOUT"),
        (SPEC, frame(Channel.RESIZE, b'{"rows": -1}'), "rows"),
    ],
)
async def test_invalid_message_ends_the_command_with_a_reason(
    api: Api, first: Any, then: bytes | None, detail: str
) -> None:
    async with exec_in(api, first) as ws:
        if then is not None:
            await ws.send_bytes(then)
        channel, end = await read(ws)
        assert channel is Channel.STATUS
        assert detail in ExecEnd.model_validate_json(end).detail
        assert ExecEnd.model_validate_json(end).exit_code is None


async def test_disconnect_of_the_user_is_detected(api: Api) -> None:
    async with exec_in(api) as ws:
        await ws.send_bytes(frame(Channel.STDIN, b"x"))
        await read(ws)
        assert not api.execs.disconnected.is_set()
    async with asyncio.timeout(10):
        await api.execs.disconnected.wait()


@asynccontextmanager
async def flooded(api: Api) -> AsyncIterator[None]:
    """A user who sends more input than the command reads. The socket is shut down without a close
    frame: the frame would queue behind the unread input, and the client would wait for its
    reply."""
    api.execs.blocked = True
    async with exec_in(api) as ws:
        connection = ws.get_extra_info("socket")

        async def flood() -> None:
            while True:
                await ws.send_bytes(frame(Channel.STDIN, b"x" * 65_536))

        flooding = asyncio.ensure_future(flood())
        try:
            done, _ = await asyncio.wait([flooding], timeout=1)
            assert not done
            yield
        finally:
            with suppress(OSError):  # the manager may have stopped
                connection.shutdown(socket.SHUT_RDWR)

            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)


async def test_command_that_reads_no_input_blocks_its_user(api: Api) -> None:
    """The manager buffers only a bounded amount of the input."""
    async with flooded(api):
        assert api.execs.opened[0].received_bytes <= 1 << 20


async def test_manager_shutdown_does_not_wait_for_unread_input(api: Api) -> None:
    async with flooded(api):
        async with asyncio.timeout(10):
            await api.runner.cleanup()
            await api.execs.disconnected.wait()
