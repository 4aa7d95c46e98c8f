"""Renewed certificates retire the previous ones, and revoked peers stay out."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from manager_harness import attach
from peer_harness import Site, SkewedClock, open_site, site

from moorage.common.link.certificates import new_key
from moorage.common.link.dial import Dialer
from moorage.common.link.identity import Identity, identity_file
from moorage.common.link.pb import peers_pb2, peers_pb2_grpc, routes_pb2, routes_pb2_grpc
from moorage.common.views.peers import PeerKind
from moorage.sdk import ApiError

__all__ = ["site"]  # fixture

LATER = SkewedClock(timedelta(days=31))


def steal(site: Site, identity: Identity, kind: PeerKind = "agent") -> Dialer:
    """A dialer with a copy of an identity, as from a stolen backup."""
    identity_file(site.home / "thief", kind, identity.name).store(identity)
    return site.dialer(identity.name, kind=kind, node="thief")


async def renew(dialer: Dialer) -> grpc.StatusCode:
    """Request a certificate, and lose the answer."""
    async with dialer.channel(()) as channel:
        call = peers_pb2_grpc.PeersStub(channel).Renew(peers_pb2.RenewRequest(csr=new_key("x")[1]))
        return await call.code()


async def test_a_renewed_certificate_retires_the_one_before(site: Site) -> None:
    old = steal(site, await site.join())
    # The old one is valid as long as the peer may not have received the new one.
    for _ in range(2):
        assert await renew(old) is grpc.StatusCode.OK

    async with attach(site.manager, dialer=old) as stream:
        await stream.next()

    await site.dialer(clock=LATER).renew()
    async with attach(site.manager, dialer=old) as stream:
        await stream.next()

    async with attach(site.manager, dialer=site.dialer()) as stream:
        await stream.next()
        async with attach(site.manager, dialer=old, incarnation="2") as stolen:
            assert await stolen.end() is grpc.StatusCode.UNAUTHENTICATED
            assert "was replaced by a newer one" in await stolen.call.details()

        assert await renew(old) is grpc.StatusCode.UNAUTHENTICATED

    # The one in use can be renewed repeatedly.
    for number in range(2, 11):
        await site.dialer(clock=LATER).renew()
        async with attach(site.manager, dialer=site.dialer(), incarnation=str(number)) as stream:
            await stream.next()

    [row] = await site.sql(
        "SELECT cardinality(retired_keys) AS count, renewed_from FROM link_peers"
    )
    assert (row["count"], row["renewed_from"]) == (8, None)


async def test_open_links_of_a_retired_certificate_end(site: Site) -> None:
    joined = await site.join("front", kind="proxy")
    stolen = steal(site, joined, "proxy")
    async with stolen.channel(()) as channel, asyncio.timeout(60):
        request = routes_pb2.WatchRequest(proxy_id="front")
        watching = routes_pb2_grpc.RouteFeedStub(channel).Watch(request)
        await watching.read()
        await site.dialer("front", kind="proxy", clock=LATER).renew()

        async with site.dialer("front", kind="proxy").channel(()) as other:
            await routes_pb2_grpc.RouteFeedStub(other).Watch(request).read()
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await watching.read() is not grpc.aio.EOF:
                    pass

    assert await watching.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_link_does_not_outlive_its_certificate_by_long(
    migrated_database: str, tmp_path: Path
) -> None:
    clock = SkewedClock()
    async with open_site(migrated_database, tmp_path, clock=clock) as site, asyncio.timeout(90):
        await site.join("node-1")
        await site.join("node-2")
        async with attach(site.manager, dialer=site.dialer()) as stream:
            await stream.next()
            await site.dialer(clock=LATER).renew()
            clock.by = timedelta(hours=2)
            await site.client.peers.revoke("agent", "node-2")  # makes the manager check all peers
            assert await stream.end() is grpc.StatusCode.UNAVAILABLE
            assert "was renewed: reconnect" in await stream.call.details()


async def test_a_revoked_peer_cannot_join_again_by_its_token(site: Site) -> None:
    token = await site.token(uses=3)
    await site.join("node-1", token)
    await site.join("node-2", token)
    await site.client.peers.revoke("agent", "node-1")
    for name in ("node-1", "node-3"):
        with pytest.raises(ApiError, match="with a peer that joined with it"):
            await site.join(name, token, node=f"again-{name}")

    assert [peer.name for peer in await site.client.peers.list()] == ["node-2"]
    async with attach(site.manager, "node-2", dialer=site.dialer("node-2")) as stream:
        await stream.next()
