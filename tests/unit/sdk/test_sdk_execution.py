"""Disconnecting from a command, against a fake of the manager's WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.commands import PROTOCOL, Channel, ExecSpec, frame
from moorage.sdk.errors import Unreachable
from moorage.sdk.execution import run_command

SPEC = ExecSpec(command=["yes"], stdin=True)


class Deaf:
    """After its first message a user is not read from, and told something all the time."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.url = URL()

    async def talk(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(protocols=(PROTOCOL,))
        await ws.prepare(request)
        await ws.receive()
        try:
            while True:
                await ws.send_bytes(frame(Channel.STDOUT, b"y"))
                await asyncio.sleep(0.05)
        finally:
            self.left.set()


@pytest.fixture
async def deaf() -> AsyncIterator[Deaf]:
    app, playing = web.Application(), Deaf()
    app.router.add_get("/exec", playing.talk)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        playing.url = URL(f"http://127.0.0.1:{runner.addresses[0][1]}/exec")
        yield playing
    finally:
        await runner.cleanup()


async def test_leaving_disconnects_beside_unread_input(deaf: Deaf) -> None:
    """The goodbye stands behind the input, and each word of the command renews the wait for an answer."""
    async with aiohttp.ClientSession() as http, asyncio.timeout(30):
        async with run_command(http, deaf.url, SPEC, timeout_s=10, unreachable=_unreachable) as command:
            assert await command.read() == (Channel.STDOUT, b"y")
            flooding = spawn("test.flood", _flood(command.send))
            done, _ = await asyncio.wait([flooding], timeout=1)
            assert not done
            await cancel_and_wait(flooding)
            assert not deaf.left.is_set()
        await deaf.left.wait()  # while this process, and its client, live on


async def _flood(send: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        await send(b"x" * 65_536)


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(str(error))
