"""The limit on sign-in attempts per address, and the address of a client behind web servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.http.client_address import TrustedProxies
from moorage.manager.identity.attempts import AttemptLimit


def test_an_address_has_a_burst_and_then_a_rate() -> None:
    limit = AttemptLimit(burst=3, refill_s=6.0)
    assert [limit.take("192.0.2.1", 100.0) for _ in range(5)] == [0, 0, 0, 6, 6]
    assert limit.take("192.0.2.2", 100.0) == 0, "another address"
    assert [limit.take("192.0.2.1", 106.0), limit.take("192.0.2.1", 106.0)] == [0, 6]
    assert [limit.take("192.0.2.1", 1000.0) for _ in range(4)] == [0, 0, 0, 6]


def test_success_does_not_count() -> None:
    limit = AttemptLimit(burst=2, refill_s=6.0)
    for now in range(50):
        assert limit.take("192.0.2.1", now / 10) == 0
        limit.give_back("192.0.2.1", now / 10)
    assert len(limit) == 0


def test_an_ipv6_client_is_its_network() -> None:
    limit = AttemptLimit(burst=1, refill_s=6.0)
    assert limit.take("2001:db8::1", 0.0) == 0
    assert limit.take("2001:db8::ffff:2", 0.0) == 6
    assert limit.take("2001:db8:0:1::1", 0.0) == 0


@given(st.lists(st.tuples(st.integers(0, 99), st.floats(0, 100), st.booleans())))
def test_memory_is_bounded_and_no_address_exceeds_its_rate(
    acts: list[tuple[int, float, bool]],
) -> None:
    limit = AttemptLimit(burst=2, refill_s=10.0, addresses=8)
    now = 0.0
    taken = 0
    for number, wait, is_one in acts:
        now += wait / 100
        if is_one:
            taken += limit.take("192.0.2.200", now) == 0
        else:
            limit.take(f"198.51.100.{number % 7}", now)

        assert len(limit) <= 8

    assert taken <= 2 + now / 10 + 1


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["203.0.113.9"], "192.0.2.1"),
        ("198.51.100.10", ["203.0.113.9"], "203.0.113.9"),
        ("::ffff:198.51.100.10", ["203.0.113.9"], "203.0.113.9"),
        ("198.51.100.10", ["192.0.2.7, 203.0.113.9"], "203.0.113.9"),
        ("198.51.100.10", ["192.0.2.7", "203.0.113.9, 198.51.100.20"], "203.0.113.9"),
        ("198.51.100.10", ["192.0.2.7, garbage"], "198.51.100.10"),
        ("198.51.100.10", ["198.51.100.30, 198.51.100.20"], "198.51.100.30"),
        ("198.51.100.10", [], "198.51.100.10"),
        (None, ["203.0.113.9"], ""),
    ],
)
def test_only_trusted_web_servers_say_who_the_client_is(
    peer: str | None, forwarded: list[str], client: str
) -> None:
    assert TrustedProxies(["198.51.100.0/24"]).client(peer, forwarded) == client
