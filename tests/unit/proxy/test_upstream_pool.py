"""The pool of connections to replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop

from moorage.common.config.settings import ProxySettings
from moorage.proxy.planes.asyncio import upstream
from moorage.proxy.planes.asyncio.upstream import UpstreamPool
from moorage.proxy.planes.providers import Providers


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_connection_is_forgotten_if_nobody_wants_it_any_more(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client disconnects at the moment when the connection to the replica is made."""

    async def cancel_when_made() -> None:
        gone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            gone.set()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            pool = UpstreamPool(5.0, Providers(ProxySettings()))
            connecting = asyncio.ensure_future(pool.connect(server.sockets[0].getsockname()))

            # Called for each connection that is made. Compiled code calls no method of a subclass
            # of set.
            monkeypatch.setattr(upstream, "keep_alive", lambda _: connecting.cancel())
            with suppress(asyncio.CancelledError):
                await connecting

            assert connecting.cancelled()
            assert not pool.connections
            async with asyncio.timeout(10):
                await gone.wait()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(cancel_when_made())
