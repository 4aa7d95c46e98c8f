"""Networks of sandboxed kernels: their rules, and the resolver of a kernel."""

from __future__ import annotations

import pytest

from moorage.agent.runtimes.process.network_rules import (
    GATEWAY,
    GATEWAY6,
    address6_of,
    inner_rules,
    node_rules,
    resolver_of,
)

_STUB = "# systemd-resolved\nnameserver 127.0.0.53\noptions edns0\n"


@pytest.mark.parametrize(
    ("resolver", "upstream", "expected"),
    [
        (_STUB, "nameserver 192.0.2.53\nnameserver 192.0.2.54\n", "192.0.2.53"),
        (_STUB, "nameserver 2001:db8::53\nnameserver 192.0.2.54\n", "192.0.2.54"),
        (_STUB, "nameserver 2001:db8::53\n", GATEWAY),
        (_STUB, "nameserver 127.0.0.1\n", GATEWAY),
        (_STUB, "", GATEWAY),
        ("nameserver 127.0.0.1\n", "nameserver fe80::1%eth0\nnameserver no-address\n", GATEWAY),
        ("nameserver 192.0.2.1\n", "nameserver 192.0.2.53\n", GATEWAY),
        ("", "", GATEWAY),
    ],
)
def test_resolver(resolver: str, upstream: str, expected: str) -> None:
    assert resolver_of(resolver, upstream) == expected


def test_published_ports_survive_a_new_agent() -> None:
    text = node_rules(
        "t",
        "mk0",
        (53,),
        (),
        published=[(21_001, "100.80.0.2", 8888), (21_000, "100.80.0.1", 21_000)],
    )
    assert "elements = { 21000 : 100.80.0.1 . 21000, 21001 : 100.80.0.2 . 8888 }" in text


def test_published_ports_are_those_of_ipv6_too_where_kernels_have_it() -> None:
    published = [(21_001, "100.80.0.2", 8888)]
    own = address6_of("100.80.0.2")
    assert own != address6_of("100.80.0.3") != GATEWAY6
    assert f"21001 : {own} . 8888" in node_rules("t", "mk0", (), (), published=published, ipv6=True)
    without = node_rules("t", "mk0", (), (), published=published)
    assert all(word not in without for word in ("ip6", "icmpv6", own))


def test_uplinks_may_be_bridges() -> None:
    [rule] = [
        line
        for line in node_rules("t", "mk0", (), ("br0",), published=()).splitlines()
        if "bridge" in line
    ]
    assert rule.strip() == 'meta oifkind "bridge" oifname != { "br0" } reject'


def test_kernels_reach_no_port_of_the_node_where_none_is_allowed() -> None:
    assert "dport {" not in node_rules("t", "mk0", (), (), published=())
    inside = inner_rules("100.80.0.1", (), GATEWAY)
    assert "127.0.0.0/8 th dport" not in inside


@pytest.mark.parametrize(("allowed", "expected"), [((53, 8800), True), ((8800,), False)])
def test_queries_to_a_resolver_on_loopback_leave_where_dns_is_allowed(
    allowed: tuple[int, ...], expected: bool
) -> None:
    inside = inner_rules("100.80.0.1", allowed, "192.0.2.53")
    assert ("th dport 53 dnat ip to 192.0.2.53" in inside) is expected
    assert f"th dport {{ 8800 }} dnat ip to {GATEWAY}" in inside
