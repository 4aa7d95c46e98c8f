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
from moorage.common.model.errors import InvalidInput
from moorage.sdk import execution
from moorage.sdk.errors import Unreachable
from moorage.sdk.execution import run_command

SPEC = ExecSpec(command=["yes"], stdin=True)


class UnresponsiveManager:
    """A manager that stops reading after the first message and writes output continuously."""

    def __init__(self) -> None:
        self.disconnected = asyncio.Event()
        self.url = URL()

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(protocols=(PROTOCOL,))
        await ws.prepare(request)
        await ws.receive()
        try:
            while True:
                await ws.send_bytes(frame(Channel.STDOUT, b"y"))
                await asyncio.sleep(0.05)
        finally:
            self.disconnected.set()


@pytest.fixture
async def unresponsive_manager() -> AsyncIterator[UnresponsiveManager]:
    app = web.Application()
    server = UnresponsiveManager()
    app.router.add_get("/exec", server.serve)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
    await runner.setup()

    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = URL(f"http://127.0.0.1:{runner.addresses[0][1]}/exec")
        yield server
    finally:
        await runner.cleanup()


async def test_exit_disconnects_despite_unread_input(
    unresponsive_manager: UnresponsiveManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close frame queues behind the input, and each output frame renews the wait for its
    reply."""
    monkeypatch.setattr(execution, "CLOSE_S", 0.3)
    async with aiohttp.ClientSession() as http, asyncio.timeout(30):
        async with run_command(
            http, unresponsive_manager.url, SPEC, timeout_s=10, unreachable=_unreachable
        ) as command:
            assert await command.read() == (Channel.STDOUT, b"y")
            flooding = spawn("test.flood", _flood(command.send))
            done, _ = await asyncio.wait([flooding], timeout=1)
            assert not done
            await cancel_and_wait(flooding)
            assert not unresponsive_manager.disconnected.is_set()

        await unresponsive_manager.disconnected.wait()  # before the client session closes


async def test_command_that_no_message_can_hold_is_refused() -> None:
    spec = ExecSpec(
        command=["true"], env={f"A{n}": "ä" * 60_000 for n in range(8)} | {"B": "\1" * 60_000}
    )
    async with aiohttp.ClientSession() as http:
        with pytest.raises(InvalidInput, match=r"`command` and `env` have 1,3.* at most 1,048,576"):
            async with run_command(
                http, URL("http://127.0.0.1:1"), spec, timeout_s=10, unreachable=_unreachable
            ):
                pass


async def _flood(send: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        await send(b"x" * 65_536)


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(str(error))
