"""Termination of revoked peers' calls."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.link.dial import REVOKED
from moorage.manager.rpc.authentication import LinkAuthenticator, LinkCaller


class SlowPeers:
    """Peers over a database that has none, and that answers once ``go`` is set. ``revoked``: the
    revoked peers."""

    def __init__(self, *revoked: str) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.revoked = revoked

    async def is_revoked(self, peer_id: str) -> bool:
        return peer_id in self.revoked

    async def valid(self, _: Collection[str]) -> dict[str, object]:
        self.asked.set()
        await self.go.wait()
        return {}


class Context:
    async def abort(
        self, _: object, details: str, trailing_metadata: tuple[tuple[str, str], ...] = ()
    ) -> None:
        raise ConnectionError(details, trailing_metadata)


def call(authenticator: LinkAuthenticator, name: str, begun: asyncio.Event) -> asyncio.Task[None]:
    peer = cast(Any, SimpleNamespace(kind="agent", name=name))

    async def run() -> None:
        async with authenticator.until_revoked(LinkCaller(name, peer, "key", "issuer"), Context()):
            begun.set()
            await asyncio.sleep(60)

    return asyncio.create_task(run())


@pytest.mark.parametrize("known", [True, False])
async def test_only_a_peer_that_was_revoked_is_told_so(known: bool) -> None:
    """A proxy that is merely unknown, as after restoring a backup, keeps serving from its last
    table."""
    peers = SlowPeers("old") if known else SlowPeers()
    peers.go.set()
    store = cast(Any, SimpleNamespace(peers=peers, notifier=SimpleNamespace(on=lambda *_: None)))
    authenticator = LinkAuthenticator(store, "token", SystemClock())
    begun = asyncio.Event()
    async with asyncio.timeout(20):
        ended = call(authenticator, "old", begun)
        await begun.wait()
        async with authenticator.loop:
            with pytest.raises(ConnectionError) as refusal:
                await ended

    assert refusal.value.args == ("agent 'old' was revoked", (REVOKED,) if known else ())


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
