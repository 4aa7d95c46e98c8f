"""Host names of a cluster's kernels, with the addresses that a runtime assigns to them, and a hosts
file."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from moorage.agent.runtimes.base import CreateFailed
from moorage.common.model.reasons import Reason


def resolve_hosts(hosts: Mapping[str, str]) -> dict[str, str]:
    """Resolve the addresses of ``hosts`` to IP addresses. Blocks. Raises ``CreateFailed``."""
    resolved = {}
    for hostname, address in hosts.items():
        try:
            addresses = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise CreateFailed(
                f"this node cannot resolve {address!r}, the address of {hostname} of its cluster: "
                f"{error}",
                reason=Reason.NO_NETWORK,
                clean=True,
                next_step="set agent.address of that agent to an IP address",
            ) from None

        resolved[hostname] = str(addresses[0][4][0])

    return resolved


def hosts_file(addresses: Mapping[str, str], of_node: str) -> str:
    """A hosts file with IP addresses by host name. These lines precede the lines in ``of_node``,
    because resolvers use the first match."""
    lines = "".join(f"{address} {hostname}\n" for hostname, address in addresses.items())
    return f"# Kernels of this session\n{lines}# Of the node\n{of_node}"
