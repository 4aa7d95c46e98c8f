"""Ends of the calls of revoked peers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

from moorage.common.aio.clock import SystemClock
from moorage.manager.rpc.authentication import Caller, LinkAuthenticator


class SlowPeers:
    """Peers of a database that knows none, and answers when ``go`` is set."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def valid(self, _: Collection[str]) -> dict[str, object]:
        self.asked.set()
        await self.go.wait()
        return {}


class Context:
    async def abort(self, _: object, details: str) -> None:
        raise ConnectionError(details)


def call(authenticator: LinkAuthenticator, name: str, begun: asyncio.Event) -> asyncio.Task[None]:
    peer = cast(Any, SimpleNamespace(kind="agent", name=name))

    async def run() -> None:
        async with authenticator.until_revoked(Caller(name, peer, "key", "issuer"), Context()):
            begun.set()
            await asyncio.sleep(60)

    return asyncio.create_task(run())


async def test_a_call_that_begins_during_the_check_is_not_taken_for_revoked() -> None:
    peers = SlowPeers()
    store = cast(Any, SimpleNamespace(peers=peers, notifier=SimpleNamespace(on=lambda *_: None)))
    authenticator = LinkAuthenticator(store, "token", SystemClock())
    begun = [asyncio.Event(), asyncio.Event()]
    async with asyncio.timeout(20):
        revoked = call(authenticator, "old", begun[0])
        await begun[0].wait()
        async with authenticator.loop:
            await peers.asked.wait()
            new = call(authenticator, "new", begun[1])
            await begun[1].wait()
            peers.go.set()
            [outcome] = await asyncio.gather(revoked, return_exceptions=True)
    assert "'old' was revoked" in str(outcome)
    assert not new.done()
    new.cancel()
    await asyncio.gather(new, return_exceptions=True)
