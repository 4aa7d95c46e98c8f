"""nftables rules for the networks of sandboxed kernels (``networks.py``). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

GATEWAY = "169.254.77.1"
"""The node's address on each veth pair."""
_NETWORK6 = int(IPv6Address("fd6d:6f6f:7261:6765::"))
GATEWAY6 = str(IPv6Address(_NETWORK6 + 1))
"""The node's IPv6 address, for kernels with IPv6."""
PUBLISHED = "published"
PUBLISHED6 = "published6"
INTERFACES = "mk"
"""The prefix of all kernels' interfaces, regardless of their agent."""
_DNS = 53
# Cloud metadata addresses other than 169.254.169.254: AWS, Google Cloud, Oracle Cloud, and
# 169.254.0.0/16 through NAT64.
_METADATA6 = ("fd00:ec2::/32", "fd20:ce::/32", "fd00:c1::/32", "64:ff9b::a9fe:0/112")
# Linux accepts no packets from the network for the former, and does not forward the latter.
_NOT_PUBLISHED6 = "{ ::1, fe80::/10 }"


def address6_of(address: str) -> str:
    """The IPv6 address of the kernel with this IPv4 address. Both are used only on the kernel's
    node."""
    return str(IPv6Address(_NETWORK6 + (1 << 32) + int(IPv4Address(address))))


def node_rules(
    table: str,
    interfaces: str,
    allowed: Sequence[int],
    uplinks: Sequence[str],
    *,
    published: Iterable[tuple[int, str, int]],
    ipv6: bool = False,
) -> str:
    """The node's nftables table. ``interfaces``: the prefix of the interfaces of the agent's
    kernels. ``allowed``: the node's ports that kernels may reach. ``uplinks``: interfaces to other
    hosts, which may be bridges. ``published``: for each port, the node's port, the kernel's address
    and the kernel's port. ``ipv6``: kernels also have IPv6."""
    kernels = f'"{interfaces}*"'
    return f"""
table inet {table}
delete table inet {table}
table inet {table} {{
{_translation(kernels, allowed, sorted(published), ipv6)}
{_filters(kernels, allowed, uplinks, ipv6)}
}}
"""


def _translation(
    kernels: str, allowed: Sequence[int], published: Sequence[tuple[int, str, int]], ipv6: bool
) -> str:
    from_kernel = f"iifname {kernels} ip daddr {GATEWAY} th dport"
    to_loopback = f"{from_kernel} {_numbers(allowed)} dnat ip to 127.0.0.1" if allowed else ""
    to_published = "fib daddr type local dnat ip to tcp dport map @published"
    map6 = to_published6 = ""
    if ipv6:
        map6 = _map(PUBLISHED6, "ipv6_addr", (element6(*entry) for entry in published))
        to_own6 = f"ip6 daddr != {_NOT_PUBLISHED6} fib daddr type local"
        to_published6 = f"{to_own6} dnat ip6 to tcp dport map @{PUBLISHED6}"

    return f"""
{_map(PUBLISHED, "ipv4_addr", (element(*entry) for entry in published))}
{map6}
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
    {to_loopback}
    {to_published}
    {to_published6}
  }}
  chain output {{
    type nat hook output priority -100; policy accept;
    {to_published}
    {to_published6}
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    oifname {kernels} ip saddr 127.0.0.0/8 snat ip to {GATEWAY}
    iifname {kernels} oifname != {kernels} masquerade
  }}"""


def _map(name: str, kind: str, elements: Iterable[str]) -> str:
    joined = ", ".join(elements)
    return f"""
  map {name} {{
    type inet_service : {kind} . inet_service
    {f"elements = {{ {joined} }}" if joined else ""}
  }}"""


def _filters(kernels: str, allowed: Sequence[int], uplinks: Sequence[str], ipv6: bool) -> str:
    to_allowed = f"iifname {kernels} th dport {_numbers(allowed)} accept" if allowed else ""
    names = ", ".join(f'"{name}"' for name in sorted(uplinks))
    to_others = f"oifname != {{ {names} }} " if uplinks else ""
    neighbors = metadata6 = ""
    if ipv6:
        neighbors = (
            f"iifname {kernels} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept"
        )
        metadata6 = f"ip6 daddr {{ {', '.join(_METADATA6)} }} th dport != {_DNS} reject"

    return f"""
  chain input {{
    type filter hook input priority 0; policy accept;
    iifname {kernels} ct state established,related accept
    {neighbors}
    {to_allowed}
    iifname {kernels} reject
  }}
  chain forward {{
    type filter hook forward priority 0; policy accept;
    iifname {kernels} jump from_kernel
    oifname {kernels} ct state established,related accept
    oifname {kernels} ct status dnat accept
    oifname {kernels} drop
  }}
  chain from_kernel {{
    ct state established,related accept
    oifname "{INTERFACES}*" reject
    meta oifkind "bridge" {to_others}reject
    ip daddr 169.254.0.0/16 th dport != {_DNS} reject
    {metadata6}
  }}"""


def element(port: int, address: str, inner: int) -> str:
    """An element for the map ``PUBLISHED``."""
    return f"{port} : {address} . {inner}"


def element6(port: int, address: str, inner: int) -> str:
    """An element for the map ``PUBLISHED6``."""
    return element(port, address6_of(address), inner)


def inner_rules(address: str, allowed: Sequence[int], resolver: str) -> str:
    """The nftables table in the namespace of the kernel with this address. ``resolver``: where its
    queries to a resolver on loopback are sent."""
    others = [port for port in allowed if port != _DNS]
    loopback = "ip daddr 127.0.0.0/8 th dport"
    to_node = f"{loopback} {_numbers(others)} dnat ip to {GATEWAY}" if others else ""
    to_resolver = f"{loopback} {_DNS} dnat ip to {resolver}" if _DNS in allowed else ""

    return f"""
table inet moorage {{
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
    iifname "eth0" meta l4proto tcp dnat ip to 127.0.0.1
  }}
  chain output {{
    type nat hook output priority -100; policy accept;
    {to_node}
    {to_resolver}
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    oifname "eth0" ip saddr 127.0.0.0/8 snat ip to {address}
  }}
}}
"""


def _numbers(ports: Iterable[int]) -> str:
    """A set in nftables' syntax."""
    return f"{{ {', '.join(str(port) for port in sorted(ports))} }}"


def resolver_of(resolver: str, upstream: str) -> str:
    """Where a kernel's queries to a resolver on loopback are sent: to the upstream resolver if
    systemd-resolved has one, because systemd-resolved answers only on loopback, otherwise to the
    node. ``resolver`` and ``upstream``: the texts of the resolv.conf files."""
    if all(ip_address(server).is_loopback for server in _name_servers(resolver)):
        for server in _name_servers(upstream):
            if not ip_address(server).is_loopback and ":" not in server:
                return server
    return GATEWAY


def _name_servers(text: str) -> list[str]:
    servers = []
    for line in text.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                with suppress(ValueError):
                    ip_address(server.partition("%")[0])
                    servers.append(server.partition("%")[0])
    return servers
