"""Fallbacks: another model, or an outside provider over TLS, which learns nothing about the client
except its body."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.addresses import free_port
from tests.conformance.planes.harness import (
    BODY,
    KEY,
    MakePlane,
    Served,
    post,
    replica,
    serving,
    table,
    target,
    until,
)
from tests.conformance.planes.replica import (
    CHUNKED,
    LAST_CHUNK,
    OK,
    SSE,
    Replica,
    Script,
    Visit,
    answers,
    chunk,
)

from moorage.common.link.messages import ModelRoute, RouteFallback, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId

THEIR_KEY = "their-key"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
LOCAL = ("127.0.0.0/8",)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The provider's self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provider")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName(
        [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
    )
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = tmp_path_factory.mktemp("provider") / "tls.pem"
    path.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, *private))

    return path


def provider(port: int, host: str = "127.0.0.1") -> RouteFallback:
    at = Target(
        SessionId(""),
        KernelId("provider-0"),
        host=host,
        port=port,
        key=THEIR_KEY,
        engine="provider",
        tls=True,
        prefix="/openai/v1",
    )
    return RouteFallback("gpt", at)


def routes(
    *targets: Target, fallbacks: tuple[RouteFallback, ...], others: tuple[ModelRoute, ...] = ()
) -> RouteTable:
    whole = table(*targets)
    return replace(whole, models=(replace(whole.models[0], fallbacks=fallbacks), *others))


@asynccontextmanager
async def with_provider(
    plane: MakePlane, certificate: Path, script: Script, host: str = "127.0.0.1", **settings: Any
) -> AsyncIterator[tuple[Served, Replica]]:
    """A plane whose only model has no replica, and falls back to a provider that runs
    ``script``."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    options = {"provider_hosts": LOCAL, "provider_ca": certificate} | settings
    async with replica(script, tls) as outside:
        given = routes(fallbacks=(provider(outside.port, host),))
        async with serving(plane, given, **options) as served:
            yield served, outside


async def test_another_model_answers_where_the_first_cannot(plane: MakePlane) -> None:
    async with replica(answers(BUSY)) as busy, replica(answers(OK)) as other:
        small = ModelRoute("small", 7, (target("s", other.port),))
        given = routes(target("k", busy.port), fallbacks=(RouteFallback("small"),), others=(small,))
        async with serving(plane, given) as served:
            client = await served.connect()
            for _ in range(2):
                response = await client.ask(post(b'{"model": "tiny", "n":1}'))
                assert (response.status, response.get("x-moorage-model")) == (200, "small")
                assert response.get("x-moorage-replica") == "session-s"

            assert [one.body for one in other.requests] == [b'{"model": "small", "n":1}'] * 2
            assert [len(one.visits) for one in (busy, other)] == [1, 1], (
                "their connections are kept"
            )


async def test_the_requests_of_a_session_go_to_one_replica(plane: MakePlane) -> None:
    async with (
        replica(answers(OK)) as one,
        replica(answers(OK)) as other,
        serving(plane, table(target("a", one.port), target("b", other.port))) as served,
    ):
        client = await served.connect()
        found = set()
        for session in range(6):
            lines = f"X-Moorage-Session: s{session}"
            seen = {
                (await client.ask(post(BODY, lines))).get("x-moorage-replica") for _ in range(3)
            }
            assert len(seen) == 1
            found |= seen

        assert found == {"session-a", "session-b"}


async def test_one_that_cannot_be_reached_falls_back(plane: MakePlane) -> None:
    async with replica(answers(OK)) as other:
        small = ModelRoute("small", 7, (target("s", other.port),))
        gone = target("k", free_port())
        async with serving(
            plane, routes(gone, fallbacks=(RouteFallback("small"),), others=(small,))
        ) as served:
            assert (await served.ask()).status == 200


async def test_a_provider_learns_nothing_of_the_client(plane: MakePlane, certificate: Path) -> None:
    lines = (
        "Cookie: session=1",
        "X-Api-Key: client-key-2",
        "OpenAI-Organization: org-of-the-client",
        "X-Forwarded-For: 192.0.2.1",
        "User-Agent: the-client",
        "Content-Type: application/json",
        "Accept: */*",
    )
    async with with_provider(plane, certificate, answers(OK)) as (served, outside):
        response = await served.ask(
            post(b'{"model":"tiny"}', *lines, path="/v1/completions?user=ann")
        )
        assert (response.status, response.get("x-moorage-model")) == (200, "gpt")
        assert THEIR_KEY not in str(response.headers)
        [request] = outside.requests
        assert request.line == "POST /openai/v1/completions HTTP/1.1"
        assert request.all("authorization") == [f"Bearer {THEIR_KEY}"]
        assert request.body == b'{"model":"gpt"}'
        kept = {
            "accept",
            "content-type",
            "host",
            "authorization",
            "content-length",
            "x-request-id",
            "user-agent",
        }
        assert {name.lower() for name, _ in request.headers} == kept
        assert KEY not in str(request.headers)
        assert "ann" not in str(request)


async def test_a_stream_of_a_provider(plane: MakePlane, certificate: Path) -> None:
    events = (SSE, chunk(b"data: 1\n\n"), chunk(b"data: [DONE]\n\n"), LAST_CHUNK)
    script = answers(b"".join(events))
    async with with_provider(plane, certificate, script) as (served, outside):
        client = await served.connect()
        for _ in range(2):
            assert (await client.ask(post())).body == b"data: 1\n\ndata: [DONE]\n\n"
        assert len(outside.visits) == 1, "its connection is kept"


async def test_what_says_whose_account_it_is_stays_here(
    plane: MakePlane, certificate: Path
) -> None:
    of_account = (
        b"OpenAI-Organization: acme\r\nx-ratelimit-remaining-tokens: 7\r\nSet-Cookie: a=b\r\n"
    )
    script = answers(CHUNKED.replace(b"Content-Type", of_account + b"Content-Type") + LAST_CHUNK)
    async with with_provider(plane, certificate, script) as (served, _):
        names = {name.lower() for name, _ in (await served.ask()).headers}
        assert not names & {"openai-organization", "x-ratelimit-remaining-tokens", "set-cookie"}


@pytest.mark.parametrize("status", [401, 403, 302])
async def test_a_provider_that_refuses_our_key_is_no_answer(
    plane: MakePlane, certificate: Path, status: int
) -> None:
    body = b'{"error":"the key their-k... of acme"}'
    refusal = (
        b"HTTP/1.1 %d No\r\nLocation: https://elsewhere.example/\r\nContent-Length: %d\r\n\r\n%b"
    )
    script = answers(refusal % (status, len(body), body))
    async with with_provider(plane, certificate, script) as (served, _):
        response = await served.ask()
        assert (response.status, b'"upstream_error"' in response.body) == (502, True)
        assert b"their-k" not in response.body
        assert not response.get("location")


async def test_its_own_errors_pass(plane: MakePlane, certificate: Path) -> None:
    script = answers(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
    async with with_provider(plane, certificate, script) as (served, _):
        assert (await served.ask()).status == 404


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_address_that_is_not_public_is_not_reached(
    plane: MakePlane, certificate: Path, host: str
) -> None:
    async with with_provider(plane, certificate, answers(OK), host, provider_hosts=()) as (
        served,
        outside,
    ):
        assert (await served.ask()).status == 502
        assert not outside.visits


async def test_a_provider_must_have_a_certificate_for_its_name(
    plane: MakePlane, certificate: Path
) -> None:
    async with with_provider(plane, certificate, answers(OK), provider_ca=None) as (
        served,
        outside,
    ):
        assert (await served.ask()).status == 502
        assert not outside.requests


async def test_a_client_that_leaves_cancels_the_provider(
    plane: MakePlane, certificate: Path
) -> None:
    async def stall(visit: Visit) -> None:
        await visit.request()
        await visit.left()

    async with with_provider(plane, certificate, stall) as (served, outside):
        client = await served.connect()
        client.send(post())
        await until(lambda: outside.requests)
        client.close()
        await until(lambda: not outside.open)
