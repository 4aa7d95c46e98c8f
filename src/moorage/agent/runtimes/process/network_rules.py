"""nftables rules of the networks of sandboxed kernels (``networks.py``). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address

GATEWAY = "169.254.77.1"
"""The address of the node at each veth pair."""
INTERFACES = "mk"
"""All interfaces of kernels begin with it, whatever their agent."""
_DNS = 53


def node_rules(
    table: str,
    interfaces: str,
    allowed: Sequence[int],
    uplinks: Sequence[str],
    published: Iterable[tuple[int, str, int]],
) -> str:
    """The nftables table of the node. ``interfaces``: prefix of those of the agent's kernels.
    ``allowed``: ports of the node that kernels may reach. ``uplinks``: interfaces to other hosts,
    which may be bridges. ``published``: port of the node, address of the kernel, port of the
    kernel."""
    kernels = f'"{interfaces}*"'
    return f"""
table inet {table}
delete table inet {table}
table inet {table} {{
{_translation(kernels, allowed, published)}
{_filters(kernels, allowed, uplinks)}
}}
"""


def _translation(
    kernels: str, allowed: Sequence[int], published: Iterable[tuple[int, str, int]]
) -> str:
    from_kernel = f"iifname {kernels} ip daddr {GATEWAY} th dport"
    to_loopback = f"{from_kernel} {_numbers(allowed)} dnat ip to 127.0.0.1" if allowed else ""
    elements = ", ".join(element(*entry) for entry in sorted(published))
    map_elements = f"elements = {{ {elements} }}" if elements else ""

    return f"""
  map published {{
    type inet_service : ipv4_addr . inet_service
    {map_elements}
  }}
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
    {to_loopback}
    fib daddr type local dnat ip to tcp dport map @published
  }}
  chain output {{
    type nat hook output priority -100; policy accept;
    fib daddr type local dnat ip to tcp dport map @published
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    oifname {kernels} ip saddr 127.0.0.0/8 snat ip to {GATEWAY}
    iifname {kernels} oifname != {kernels} masquerade
  }}"""


def _filters(kernels: str, allowed: Sequence[int], uplinks: Sequence[str]) -> str:
    to_allowed = f"iifname {kernels} th dport {_numbers(allowed)} accept" if allowed else ""
    names = ", ".join(f'"{name}"' for name in sorted(uplinks))
    to_others = f"oifname != {{ {names} }} " if uplinks else ""
    return f"""
  chain input {{
    type filter hook input priority 0; policy accept;
    iifname {kernels} ct state established,related accept
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
  }}"""


def element(port: int, address: str, inner: int) -> str:
    """Of the map ``published``."""
    return f"{port} : {address} . {inner}"


def inner_rules(address: str, allowed: Sequence[int], resolver: str) -> str:
    """The nftables table in the namespace of the kernel with this address. ``resolver``: where its
    queries to a resolver on loopback go."""
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
    """A set of nftables."""
    return f"{{ {', '.join(str(port) for port in sorted(ports))} }}"


def resolver_of(resolver: str, upstream: str) -> str:
    """Where a kernel's queries to a resolver on loopback go: to the one behind it if
    systemd-resolved knows one, because it answers on loopback only, else to the node. ``resolver``
    and ``upstream``: texts of resolv.conf."""
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
