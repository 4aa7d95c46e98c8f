"""The guard for request heads: versions, repeated and ambiguous names, and the Host of loopback
listeners."""

from __future__ import annotations

import tracemalloc

import pytest

from moorage.common.http.head import HeadGuard


def guard(listen: str = "127.0.0.1", *names: str) -> HeadGuard:
    return HeadGuard(listen, names, setting="x.allowed_hosts")


@pytest.mark.parametrize(
    ("version", "names", "status"),
    [
        ((1, 1), ["Host", "Accept", "Accept", "Cookie", "Cookie"], None),
        ((1, 0), [], None),
        ((0, 9), [], 505),
        ((2, 0), ["Host"], 505),
        ((1, 2), ["Host"], 505),
        ((1, 1), ["Authorization", "authorization"], 400),
        ((1, 1), ["X-Api-Key", "X-API-KEY"], 400),
        ((1, 1), ["Content-Type", "Content-Type"], 400),
        ((1, 1), ["X_Api_Key"], 400),
        ((1, 1), ["Content_Length"], 400),
        ((1, 1), ["transfer_Encoding"], 400),
        ((1, 1), ["X-Forwarded_For"], 400),
        ((1, 1), ["my_own_header"], None),
    ],
)
def test_ambiguous_heads_are_refused(
    version: tuple[int, int], names: list[str], status: int | None
) -> None:
    refusal = guard().find_problem(version, [name.encode() for name in names], "localhost")
    assert (refusal.status if refusal else None) == status


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("LocalHost.:8800", True),
        ("127.0.0.1:8800", True),
        ("127.3.2.1", True),
        ("[::1]:8800", True),
        ("", True),
        (f"lab--{'0' * 36}.localhost:8800", True),
        ("evil.example:8800", False),
        ("localhost.evil.example", False),
        ("evillocalhost", False),
        ("127.0.0.1.evil.example", False),
        ("192.0.2.1", False),
        ("[::2]", False),
        ("127.0.0.1@evil.example", False),
        ("moorage.example", True),
        ("a.apps.example:443", True),
        ("evilapps.example", False),
    ],
)
def test_loopback_listener_answers_to_its_own_names(host: str, allowed: bool) -> None:
    names = "moorage.example", ".apps.example"
    checked = guard("127.0.0.1", *names)
    for _ in range(2):  # the second time from the cache
        refusal = checked.find_problem((1, 1), [b"Host"], host)
        assert (refusal is None) is allowed

    if refusal is not None:
        assert refusal.status == 421
        assert "x.allowed_hosts" in refusal.detail

    assert guard("0.0.0.0").find_problem((1, 1), [b"Host"], host) is None, (
        "others reach it by any name"
    )


def test_memory_of_hosts_is_bounded() -> None:
    checked = guard()
    tracemalloc.start()
    try:
        for number in range(20_000):
            assert checked.find_problem((1, 1), [b"Host"], f"127.0.0.1:{number}") is None
        assert tracemalloc.get_traced_memory()[0] < 300_000
    finally:
        tracemalloc.stop()
