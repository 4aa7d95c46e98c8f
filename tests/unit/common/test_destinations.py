"""The guard for user-supplied URLs: decisions on resolved addresses, and pinned connections."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.http.guarded_session import DestinationGuard
from moorage.common.model.destinations import DestinationPolicy, decide, is_public, parse
from moorage.common.model.errors import InvalidInput

PUBLIC = ["8.8.8.8", "192.88.99.9", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
NOT_PUBLIC = [
    *(str(IPv4Address(number)) for number in (0x0A010203, 0xC0A80101, 0xAC100001)),
    "0.0.0.0", "100.64.0.1", "127.0.0.1", "169.254.169.254", "192.0.2.1",
    "198.18.0.1", "224.0.0.1", "255.255.255.255",
    "fc00::1", "fd00:ec2::254", "fe80::1", "ff02::1",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
    "::ffff:100.64.0.1",
    "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:db8::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    assert is_public(ip_address(address))
    assert decide("host.example", [address], DestinationPolicy()) == (address,)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_other_addresses_are_refused_alone_and_among_public_ones(address: str) -> None:
    assert not is_public(ip_address(address))
    for addresses in ([address], ["8.8.8.8", address], [address, "8.8.8.8"]):
        with pytest.raises(InvalidInput, match=r"host\.example"):
            decide("host.example", addresses, DestinationPolicy())


@given(st.integers(0, 2**32 - 1))
@examples(60)
def test_no_notation_of_an_ipv4_address_in_ipv6_changes_the_decision(number: int) -> None:
    plain = IPv4Address(number)
    for carrier in (
        (0xFFFF << 32) | number,
        (0x64FF9B << 96) | number,
        (0x2002 << 112) | (number << 80),
    ):
        assert is_public(IPv6Address(carrier)) == is_public(plain)


def test_administrators_allow_networks_and_names() -> None:
    policy = DestinationPolicy(
        allowed=("100.65.0.0/16", "fd00::/8", "registry.internal", ".svc.internal")
    )
    assert decide("a.example", ["100.65.9.9"], policy) == ("100.65.9.9",)
    assert decide("a.example", ["::ffff:100.65.9.9"], policy)
    assert decide("a.example", ["fd00::7"], policy)
    assert decide("Registry.Internal.", ["198.18.0.2"], policy)
    assert decide("x.svc.internal", ["127.0.0.1"], policy)

    for host, address in (
        ("a.example", "198.18.0.1"),
        ("svc.internal", "198.18.0.1"),
        ("evilregistry.internal", "198.18.0.1"),
    ):
        with pytest.raises(InvalidInput):
            decide(host, [address], policy)

    with pytest.raises(InvalidInput):
        decide("nowhere.example", [], policy)


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "/x", "a/b", "file://host/x", "gopher://h/", "unix:x", "https://",
        "https:///p", "http://h.example/", "https://user@h.example/", "https://:secret@h.example/",
        "https://h.example:99999/", "wss://h.example/", "ftp://h.example/",
    ],
)  # fmt: skip
def test_forms_of_urls_that_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        parse(url, DestinationPolicy())


def test_forms_of_urls_that_are_allowed() -> None:
    assert parse("https://h.example:8443/a?b", DestinationPolicy()).port == 8443
    assert parse("http://h.example/", DestinationPolicy(plain_http=True)).port == 80


async def test_connection_goes_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the check, the name resolves to another address, as with DNS rebinding, and the
    environment points to a proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    asked: list[str] = []
    answers = iter([["127.0.0.1"], ["192.0.2.1"]])

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    async def hello(request: web.BaseRequest) -> web.Response:
        return web.Response(text=request.headers["Host"])

    runner = web.ServerRunner(web.Server(hello))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        guard = DestinationGuard(
            DestinationPolicy(allowed=("127.0.0.1",), plain_http=True), resolve
        )
        destination = await guard.check(f"http://hook.example:{port}/")
        async with guard.session(destination) as http:
            for _ in range(2):
                async with http.get(destination.url, allow_redirects=False) as answer:
                    assert await answer.text() == f"hook.example:{port}"

            for other in (
                f"http://127.0.0.1:{port}/",
                f"http://other.example:{port}/",
                "http://hook.example:1/",
            ):
                with pytest.raises(aiohttp.ClientError):
                    await http.get(other)
    finally:
        await runner.cleanup()

    assert asked == ["hook.example"]


async def test_literal_addresses_are_decided_however_they_are_written() -> None:
    guard = DestinationGuard(DestinationPolicy(plain_http=True))
    for host in (
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost",
    ):
        with pytest.raises(InvalidInput):
            await guard.check(f"http://{host}/")
