"""Rotation of the CA while an agent and a proxy are connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from manager_harness import attach
from peer_harness import Site, SkewedClock, open_site
from typer.testing import CliRunner

from moorage.agent import Agent
from moorage.cli import app
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.link.dial import Dialer
from moorage.common.link.identity import Identity, identity_file, split_bundle
from moorage.common.link.pb import peers_pb2, peers_pb2_grpc, routes_pb2, routes_pb2_grpc
from moorage.common.views.peers import PeerKind
from moorage.sdk import ApiError


def stored(site: Site, name: str, kind: PeerKind) -> Identity:
    identity = identity_file(site.home / name, kind, name).load()
    assert identity is not None
    return identity


def copy(site: Site, identity: Identity) -> Dialer:
    """A dialer with a copy of an earlier identity."""
    identity_file(site.home / "copy", identity.kind, identity.name).store(identity)
    return site.dialer(identity.name, kind=identity.kind, node="copy")


async def hello(dialer: Dialer) -> grpc.StatusCode:
    """As a peer of the previous release reports it."""
    async with dialer.channel(()) as channel:
        call = peers_pb2_grpc.PeersStub(channel).Hello(peers_pb2.HelloRequest(), timeout=20)
        return await call.code()


@asynccontextmanager
async def watching(dialer: Dialer, name: str) -> AsyncIterator[grpc.aio.UnaryStreamCall]:
    async with dialer.channel(()) as channel:
        call = routes_pb2_grpc.RouteFeedStub(channel).Watch(routes_pb2.WatchRequest(proxy_id=name))
        await call.read()
        yield call


async def go_on(site: Site, clock: SkewedClock) -> str:
    clock.by += timedelta(minutes=2)
    return (await site.client.ca.rotate()).state


async def test_the_ca_is_rotated_without_joining_again(
    migrated_database: str, tmp_path: Path
) -> None:
    clock = SkewedClock()
    async with open_site(migrated_database, tmp_path, clock=clock) as site, asyncio.timeout(120):
        agent = await site.join("node-1")
        proxy = await site.join("front", kind="proxy")
        dialers = site.dialer(), site.dialer("front", kind="proxy")
        first = await site.client.ca.get()

        async with (
            attach(site.manager, dialer=dialers[0]) as stream,
            watching(dialers[1], "front") as watch,
        ):
            await stream.next()
            late = await site.token()
            assert (await site.client.ca.rotate()).state == "distributing"
            during = await site.join("node-2")
            assert len(split_bundle(during.authority)) == 2, "who joins now trusts the next CA"
            assert await go_on(site, clock) == "distributing"
            await site.client.peers.revoke("agent", "node-2")
            await dialers[0].maintain()
            view = await site.client.ca.rotate()
            assert [(p.kind, p.name) for p in view.waiting_for] == [("proxy", "front")]
            with pytest.raises(ApiError, match="is distributing, not reissuing"):
                await site.client.ca.rotate("reissuing")

            await dialers[1].maintain()
            assert await go_on(site, clock) == "reissuing"
            with pytest.raises(ApiError, match="was deleted"):
                await site.join("node-3", late)

            for dialer in dialers:
                await dialer.maintain()

            # Both links still use the former certificates, which are valid until the CA is dropped.
            assert await hello(copy(site, agent)) is grpc.StatusCode.UNAVAILABLE, (
                "it trusts the old CA only"
            )
            assert not watch.done()
            assert await go_on(site, clock) == "steady"
            assert await stream.end() is grpc.StatusCode.UNAVAILABLE
            assert "reconnect" in await stream.call.details()

        for dialer in dialers:
            await dialer.maintain()

        last = await site.client.ca.get()
        assert (last.other, last.waiting_for) == (None, [])
        assert last.issuer != first.issuer

        for before, dialer in zip((agent, proxy), dialers, strict=True):
            after = stored(site, before.name, before.kind)
            assert after.id == before.id, "it joined again"
            assert len(split_bundle(after.authority)) == 1
            assert await hello(dialer) is grpc.StatusCode.OK

        # A peer that has the former CA's key and knows the new CA is also refused.
        now = stored(site, "node-1", "agent")
        mixed = Identity(**{**_fields(agent), "authority": now.authority})
        assert await hello(copy(site, mixed)) is grpc.StatusCode.UNAVAILABLE
        async with attach(site.manager, dialer=dialers[0], incarnation="2") as stream:
            await stream.next()


def _fields(identity: Identity) -> dict[str, object]:
    return {name: getattr(identity, name) for name in Identity.__slots__}


async def rotate_ca(site: Site, *args: str) -> str:
    """The output of `moorage peers rotate-ca`."""
    key = (site.home / "admin-key").read_text().strip()
    env = {
        "MOORAGE_URL": site.url,
        "MOORAGE_API_KEY": key,
        "MOORAGE_HOME": str(site.home / "cli"),
        "MOORAGE_INSECURE_LOOPBACK": "1",
    }
    result = await asyncio.to_thread(
        CliRunner().invoke, app, ["peers", "rotate-ca", *args], env=env
    )

    return result.output


async def test_the_command_says_whom_it_waits_for_and_who_must_join_again(
    migrated_database: str, tmp_path: Path
) -> None:
    async with open_site(migrated_database, tmp_path) as site, asyncio.timeout(120):
        await site.join()
        assert "no rotation is in progress" in await rotate_ca(site, "--force")
        assert "exclude each other" in await rotate_ca(site, "--force", "--status")
        assert "steady; the CA " in await rotate_ca(site, "--status")
        assert "waiting for: agent node-1" in await rotate_ca(site)
        assert "distributing since " in await rotate_ca(site, "--status")
        assert "must join again: agent node-1" in await rotate_ca(site, "--force")
        assert '"reissuing"' in await rotate_ca(site, "-o", "json")


async def test_a_peer_of_the_previous_release_is_waited_for_and_named(
    migrated_database: str, tmp_path: Path
) -> None:
    clock = SkewedClock()
    async with open_site(migrated_database, tmp_path, clock=clock) as site, asyncio.timeout(120):
        await site.join()
        former = site.dialer()
        await site.client.ca.rotate()

        async with former.channel(()) as old_connection:
            peers = peers_pb2_grpc.PeersStub(old_connection)
            await peers.Hello(peers_pb2.HelloRequest())
            assert await go_on(site, clock) == "distributing"
            forced = await site.client.ca.rotate("distributing")
            assert (forced.state, [peer.name for peer in forced.join_again]) == (
                "reissuing",
                ["node-1"],
            )
            forced = await site.client.ca.rotate("reissuing")
            assert (forced.state, [peer.name for peer in forced.join_again]) == (
                "steady",
                ["node-1"],
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await peers.Hello(peers_pb2.HelloRequest())

            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "CA that has been replaced: join again" in str(refused.value.details())

        assert await hello(former) is grpc.StatusCode.UNAVAILABLE
        await site.client.peers.revoke("agent", "node-1")
        await site.join(node="again")
        assert await hello(site.dialer(node="again")) is grpc.StatusCode.OK


async def test_a_running_agent_learns_the_next_ca_when_it_starts(
    migrated_database: str, tmp_path: Path
) -> None:
    clock = SkewedClock()
    async with open_site(migrated_database, tmp_path, clock=clock) as site, asyncio.timeout(120):
        joined = await site.join()
        await site.client.ca.rotate()
        settings = AgentSettings(
            id="node-1", manager=joined.link, inventory="fake:1xH100", docker="off"
        )
        home = site.home / "node-1"
        async with Agent(settings, CommonSettings(), clock=SystemClock(), home=home):
            while (await site.client.ca.get()).waiting_for:
                await asyncio.sleep(0.1)

        assert await go_on(site, clock) == "reissuing"
