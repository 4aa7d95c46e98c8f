"""Registration and mTLS of agents and proxies on a real manager, with real certificates."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from manager_harness import Stream, attach
from peer_harness import Site, SkewedClock, open_site, site

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.link.certificates import JoinToken
from moorage.common.link.dial import Dialer, dialer_for
from moorage.common.link.identity import IdentityFile, identity_file
from moorage.common.link.installation import installation_file
from moorage.common.link.pb import (
    agent_pb2_grpc,
    peers_pb2,
    peers_pb2_grpc,
    routes_pb2,
    routes_pb2_grpc,
)
from moorage.common.model.errors import ConfigError, InvalidInput
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.status import AgentStatus
from moorage.sdk import ApiError
from moorage.server.registration import join

__all__ = ["site"]  # fixture

HOURS = timedelta(hours=1)


async def refusal(site: Site, dialer: Dialer, name: str = "node-1") -> tuple[grpc.StatusCode, str]:
    """The status and details with which the manager ends a stream of ``dialer``."""
    async with dialer.channel(()) as channel:
        call = agent_pb2_grpc.AgentLinkStub(channel).Attach(metadata=dialer.metadata)
        stream = Stream(call, None, name, "1")
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.report()
        async with asyncio.timeout(10):
            return await stream.end(), await call.details()


async def test_agent_joins_and_works_over_tls(site: Site) -> None:
    with pytest.raises(ApiError, match="'gold' does not exist"):
        await site.token(resource_group="gold")

    await site.client.groups.update("gold", GroupOptions())
    without_tls = installation_file(site.home / "node-1", "agent", "node-1")
    without_tls.admit("another", "127.0.0.1:1")
    joined = await site.join(token=await site.token(resource_group="gold"))
    assert (joined.link, joined.resource_group) == (site.manager.link_address, "gold")
    assert not without_tls.path.exists(), "it has moved"
    connected = asyncio.Event()
    settings = AgentSettings(
        id="node-1",
        manager=joined.link,
        resource_group="gold",
        inventory="fake:1xH100",
        docker="off",
    )
    home = site.home / "node-1"
    async with Agent(
        settings, CommonSettings(), clock=SystemClock(), home=home, ready=connected.set
    ):
        async with asyncio.timeout(20):
            await connected.wait()

        view = await site.client.agents.get("node-1")
        assert (view.status, view.resource_group) == (AgentStatus.ALIVE, "gold")

    [peer] = await site.client.peers.list()
    assert (peer.kind, peer.name, peer.certificate_until) == ("agent", "node-1", joined.ends)
    kept = identity_file(home, "agent", None)
    assert kept.path.stat().st_mode & 0o777 == 0o600
    assert joined.key not in str(await site.sql("SELECT * FROM link_peers")), (
        "the private key left the node"
    )


async def test_join_token_is_stored_as_its_verifier_only(site: Site) -> None:
    secret = await site.token()
    token = JoinToken.parse(secret)
    stored = str(await site.sql("SELECT * FROM join_tokens"))
    assert token.verifier in stored
    assert token.seed.hex() not in stored
    assert secret not in stored
    assert "ENCRYPTED" in (await site.sql("SELECT key FROM link_authority"))[0]["key"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("expires_at = now()", "expired at"),
        ("removed_at = now()", "was deleted"),
        ("kind = 'proxy'", "is for a proxy, not for an agent"),
        ("verifier = repeat('0', 64)", "knows no such join token"),
    ],
)
async def test_invalid_join_token_is_refused(site: Site, change: str, message: str) -> None:
    token = await site.token()
    await site.sql(f"UPDATE join_tokens SET {change}")
    with pytest.raises(ApiError) as refused:
        await site.join(token=token)
    assert (refused.value.status, message in str(refused.value)) == (403, True), refused.value
    assert await site.client.peers.list() == []


async def test_concurrent_joins_respect_the_limit_of_a_token(site: Site) -> None:
    token = await site.token(uses=3)
    results = await asyncio.gather(
        *(site.join(f"n{i}", token) for i in range(12)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 9
    assert all(isinstance(e, ApiError) and "could be used 3 times" in str(e) for e in refused), (
        refused
    )
    assert len(await site.client.peers.list()) == 3
    assert await site.client.join_tokens.list() == []


async def test_concurrent_joins_under_one_name_admit_one_peer(site: Site) -> None:
    token = await site.token(uses=9)
    results = await asyncio.gather(
        *(site.join("node-1", token, node=f"home-{i}") for i in range(6)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 5
    assert all(
        isinstance(e, ApiError) and e.status == 409 and "peers revoke" in str(e) for e in refused
    )
    [unused] = await site.client.join_tokens.list()
    assert unused.used == 1, "a refusal counted as a use"


async def test_repeated_join_after_a_lost_response_counts_once(site: Site) -> None:
    token = await site.token()
    first = await site.join(token=token, clock=SkewedClock())
    home = site.home / "node-1"

    # As if the node had died before it stored the response: its key exists, but its identity does
    # not.
    file = identity_file(home, "agent", "node-1")
    file.path.unlink()
    request = JoinToken.parse(token).request("agent", "node-1", _csr_for(first.key))
    again = await site.client.peers.join(request)
    assert again.id == first.id
    with pytest.raises(ApiError) as refused:
        await site.client.peers.join(JoinToken.parse(token).request("agent", "node-2", request.csr))

    assert "could be used once" in str(refused.value)


def _csr_for(key: str) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    loaded = serialization.load_pem_private_key(key.encode(), None)
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return request.sign(loaded, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()  # type: ignore[arg-type]


async def test_forged_join_request_is_refused(site: Site) -> None:
    token = JoinToken.parse(await site.token())
    other = JoinToken.parse(await site.token())
    request = token.request("agent", "node-1", _csr_for((await site.join("n")).key))
    for forged in (
        request.model_copy(update={"name": "node-2"}),
        request.model_copy(update={"verifier": other.verifier}),
    ):
        with pytest.raises(ApiError) as refused:
            await site.client.peers.join(forged)
        assert (refused.value.status, "signature" in str(refused.value)) == (403, True)


async def test_node_refuses_a_manager_that_did_not_issue_its_token(site: Site) -> None:
    token = JoinToken.parse(await site.token())
    other = replace(token, fingerprint=bytes(32)).text
    with pytest.raises(ConfigError, match="not the manager that issued this join token"):
        await site.join(token=other)

    assert identity_file(site.home / "node-1", "agent", "node-1").load() is None
    for broken in ("", "mgj-", other[:-3], "xxx" + other):
        with pytest.raises(InvalidInput, match="not a join token"):
            await join(
                site.url, broken, kind="agent", name="n", home=site.home / "n", clock=SystemClock()
            )


async def test_node_refuses_a_manager_of_another_ca(site: Site) -> None:
    await site.join()
    file = identity_file(site.home / "node-1", "agent", "node-1")
    identity = file.load()
    assert identity is not None
    other_ca = _another_authority()
    file.store(replace(identity, authority=other_ca))
    code, details = await refusal(site, site.dialer())
    assert (code, "handshake failed" in details) == (grpc.StatusCode.UNAVAILABLE, True), details


def _another_authority() -> str:
    from moorage.manager.crypto.authority import CertificateAuthority

    return CertificateAuthority.create("secret", SystemClock().now()).certificate


async def test_manager_refuses_a_certificate_of_another_ca(site: Site) -> None:
    from moorage.manager.crypto.authority import CertificateAuthority, read_csr

    joined = await site.join()
    other = CertificateAuthority(CertificateAuthority.create("s", SystemClock().now()), "s")
    forged = other.sign_peer_certificate(
        read_csr(_csr_for(joined.key)),
        "agent",
        "node-1",
        joined.id,
        now=SystemClock().now(),
        lifetime=HOURS,
    )
    identity_file(site.home / "node-1", "agent", "node-1").store(
        replace(joined, certificate=forged)
    )
    dialer = site.dialer()
    code, _ = await refusal(site, dialer)
    assert code is grpc.StatusCode.UNAVAILABLE


async def test_connection_without_a_certificate_is_refused(site: Site) -> None:
    plain = Dialer(site.manager.link_address, token="unused", clock=SystemClock())
    assert (await refusal(site, plain))[0] is grpc.StatusCode.UNAVAILABLE


async def test_certificate_is_valid_for_its_own_agent_only(site: Site) -> None:
    await site.client.groups.update("gold", GroupOptions())
    await site.join("node-1", await site.token(resource_group="gold"))
    await site.join("node-2")
    code, details = await refusal(site, site.dialer("node-2"), "node-1")
    assert (code, "is for agent 'node-2', not for 'node-1'" in details) == (
        grpc.StatusCode.PERMISSION_DENIED,
        True,
    )
    code, details = await refusal(site, site.dialer("node-1"), "node-1")
    assert (code, "joined for the resource group 'gold', not for 'default'" in details) == (
        grpc.StatusCode.PERMISSION_DENIED,
        True,
    )
    assert [view.id for view in await site.client.agents.list()] == []

    async with attach(site.manager, "node-2", dialer=site.dialer("node-2")) as stream:
        await stream.next()
        stream.name = "node-1"  # every report of a stream is checked, not only the first
        await stream.report()
        assert await stream.end() is grpc.StatusCode.INVALID_ARGUMENT

    assert [view.id for view in await site.client.agents.list()] == ["node-2"]


async def test_certificate_is_valid_for_its_own_kind_of_peer_only(site: Site) -> None:
    await site.join("node-1")
    await site.join("front", kind="proxy")
    proxy = site.dialer("front", kind="proxy")
    assert (await refusal(site, proxy, "front"))[0] is grpc.StatusCode.PERMISSION_DENIED

    async with proxy.channel(()) as channel:
        stub = routes_pb2_grpc.RouteFeedStub(channel)
        call = stub.Watch(routes_pb2.WatchRequest(proxy_id="front"))
        async with asyncio.timeout(10):
            assert (await call.read()).generation > 0

        call.cancel()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Watch(routes_pb2.WatchRequest(proxy_id="back")).read()

        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED

    async with site.dialer("node-1").channel(()) as channel:
        stub = routes_pb2_grpc.RouteFeedStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Watch(routes_pb2.WatchRequest(proxy_id="node-1")).read()

        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_certificate_of_an_agent_cannot_serve_as_a_manager(site: Site) -> None:
    """A compromised node must not be able to send orders to others."""
    joined = await site.join("node-1")
    await site.join("node-2")
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentLinkServicer_to_server(agent_pb2_grpc.AgentLinkServicer(), server)
    pair = (joined.key.encode(), joined.certificate.encode())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()

    try:
        dialer = site.dialer("node-2", target=f"127.0.0.1:{port}")
        code, details = await refusal(site, dialer, "node-2")
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "CERTIFICATE_VERIFY_FAILED" in details, details
    finally:
        await server.stop(0)


async def test_expired_certificate_is_refused_by_both_ends(
    migrated_database: str, tmp_path: Path
) -> None:
    async with open_site(migrated_database, tmp_path, days=2 / 86_400) as site:
        joined = await site.join()
        async with asyncio.timeout(20):
            # TLS uses the clock of the last timer tick, which is some milliseconds behind.
            while SystemClock().now() <= joined.ends + timedelta(seconds=0.1):
                await asyncio.sleep(0.05)

        with pytest.raises(ConfigError, match=r"certificate expired at .*join again"):
            site.dialer().channel(())

        # The manager also refuses it if the node's clock is behind.
        behind = site.dialer(clock=SkewedClock(-HOURS / 2))
        assert (await refusal(site, behind))[0] is grpc.StatusCode.UNAVAILABLE
        await site.client.peers.revoke("agent", "node-1")
        assert (await site.join(node="reinstalled")).name == "node-1"


async def test_certificate_is_renewed_over_the_link(site: Site) -> None:
    joined = await site.join()
    file = identity_file(site.home / "node-1", "agent", "node-1")
    await site.dialer().renew()
    assert file.load() == joined, "renewed too early: two thirds of its lifetime remain"
    [before] = await site.sql("UPDATE link_peers SET certificate_until = now() RETURNING *")
    later = SkewedClock(timedelta(days=31))
    renewing = site.dialer(clock=later)
    await renewing.renew()
    renewed = file.load()
    assert renewed is not None
    assert (renewed.id, renewed.name) == (joined.id, joined.name)
    assert renewed.key != joined.key
    assert renewed.certificate != joined.certificate
    [after] = await site.sql("SELECT * FROM link_peers")
    assert after["certificate_until"] > before["certificate_until"]
    async with attach(site.manager, dialer=site.dialer()) as stream:
        await stream.next()

    assert [m.name for m in await site.client.peers.list()] == ["node-1"]


async def test_invalid_renewal_request_is_refused(site: Site) -> None:
    await site.join()
    async with site.dialer().channel(()) as channel:
        stub = peers_pb2_grpc.PeersStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Renew(peers_pb2.RenewRequest(csr="-----BEGIN NONSENSE-----"))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_join_with_a_wrong_clock(site: Site) -> None:
    token = await site.token()
    with pytest.raises(ConfigError, match=r"clock is (7199|7200) s behind"):
        await site.join(token=token, clock=SkewedClock(-2 * HOURS))
    with pytest.raises(ConfigError, match=r"clock is \d+ s ahead of"):
        await site.join(token=token, clock=SkewedClock(timedelta(days=100)))

    # Half an hour is tolerated, and the refusals have not used up the token.
    joined = await site.join(token=token, clock=SkewedClock(-HOURS / 2))
    async with attach(site.manager, dialer=site.dialer(clock=SkewedClock(-HOURS / 2))) as stream:
        await stream.next()

    assert [m.id for m in await site.client.peers.list()] == [joined.id]


async def test_revoked_peer_is_disconnected_and_refused(site: Site) -> None:
    await site.join()
    async with attach(site.manager, dialer=site.dialer()) as stream:
        await stream.next()
        await site.client.peers.revoke("agent", "node-1")
        async with asyncio.timeout(10):
            await stream.end()

    code, details = await refusal(site, site.dialer())
    assert (code, "was revoked" in details) == (grpc.StatusCode.UNAUTHENTICATED, True)
    rejoined = await site.join(node="reinstalled")
    async with attach(site.manager, dialer=site.dialer(node="reinstalled")) as stream:
        await stream.next()

    assert [m.id for m in await site.client.peers.list()] == [rejoined.id]
    assert (await refusal(site, site.dialer()))[0] is grpc.StatusCode.UNAUTHENTICATED, (
        "the former identity is still accepted"
    )


async def test_forgotten_agent_is_revoked(migrated_database: str, tmp_path: Path) -> None:
    async with open_site(migrated_database, tmp_path, grace_s=2) as site:
        await site.join()
        async with attach(site.manager, dialer=site.dialer()) as stream:
            await stream.next()
        async with asyncio.timeout(20):
            while (await site.client.agents.get("node-1")).status is AgentStatus.ALIVE:
                await asyncio.sleep(0.05)

        await site.client.agents.forget("node-1")
        assert (await refusal(site, site.dialer()))[0] is grpc.StatusCode.UNAUTHENTICATED
        [row] = await site.sql("SELECT revoked_by FROM link_peers")
        assert row["revoked_by"] == "key:admin"


async def test_two_managers_share_one_ca(site: Site) -> None:
    secret = site.home / "ca-secret"
    second = site.home / "second"
    second.mkdir()
    for name in ("admin-key", "ca-secret"):
        (second / name).write_text((site.home / name).read_text())

    async with open_site(site.dsn, second) as other:
        token = await site.token()
        joined = await join(
            other.url,
            token,
            kind="agent",
            name="node-1",
            home=site.home / "node-1",
            clock=SystemClock(),
        )
        assert joined.link == f"{other.manager.link_address},{site.manager.link_address}"
        for manager in (other.manager, site.manager):
            async with attach(manager, dialer=site.dialer(target=manager.link_address)) as stream:
                await stream.next()

    (second / "ca-secret").write_text("another\n")
    with pytest.raises(ConfigError, match=r"manager\.ca_secret does not decrypt"):
        async with open_site(site.dsn, second):
            pass

    assert secret.stat().st_mode & 0o777 == 0o600


def test_plain_text_needs_loopback_or_an_explicit_setting(tmp_path: Path) -> None:
    def dial(target: str, **fields: object) -> Dialer:
        settings = {
            "link_tls": "auto",
            "token": "t",
            "home": tmp_path,
            "clock": SystemClock(),
        } | fields
        return dialer_for("agent", "node-1", target, **settings)  # type: ignore[arg-type]

    for target in ("127.0.0.1:8701", "[::1]:8701", "localhost:8701"):
        assert not dial(target).has_tls

    with pytest.raises(
        ConfigError, match=r"has not joined .* agent\.manager = '192\.0\.2\.7:8701'"
    ):
        dial("192.0.2.7:8701")

    with pytest.raises(ConfigError, match="has not joined"):
        dial("127.0.0.1:8701", link_tls="on")

    assert not dial("192.0.2.7:8701", link_tls="off").has_tls
    with pytest.raises(ConfigError, match="no link token"):
        dial("127.0.0.1:8701", token="")

    broken = IdentityFile(tmp_path / "joined" / "agent-node-1.json")
    broken.path.parent.mkdir()
    broken.path.write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        dial("127.0.0.1:8701")
