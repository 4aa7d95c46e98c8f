"""NAT in network namespaces: hosts on one bridge, and one behind a router that can restart.

A restart of the router clears its connection tracking, as if the mappings had timed out.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from .namespaces import Namespaces, run

# Packets that belong to no connection that the router has seen are dropped, even those from inside;
# nothing is rejected.
_RULES = """
table inet nat {
  chain input { type filter hook input priority 0; policy drop; }
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    tcp flags & (fin|syn|rst|ack) != syn drop
    iifname "eth1" ct state new accept
  }
  chain postrouting { type nat hook postrouting priority 100;
    oifname "eth0" masquerade
  }
}
"""


class Nat:
    """``outside``: hosts with public addresses; ``inside``: the host behind the router. ``own``:
    the tests' address outside."""

    def __init__(self, outside: Sequence[str], inside: str) -> None:
        self._inside = inside
        self.outside = tuple(outside)
        self._hosts = Namespaces([*outside, "router"])
        self._network = f"10.236.{self._hosts.number}"
        self.addresses = self._hosts.addresses | {inside: f"{self._network}.2"}
        self.own = self._hosts.own
        self.router = self._hosts.addresses["router"]

    def open(self) -> None:
        """Raises ``OSError`` if namespaces cannot be made."""
        self.close()  # left by a killed test
        self._hosts.open()

        try:
            run("ip", "netns", "add", self._space(self._inside))
            for name in self.outside:
                self._in(name, "ip", "route", "add", f"{self._network}.0/24", "via", self.router)

            run("ip", "route", "add", f"{self._network}.0/24", "via", self.router)
            self.restart_router()
        except OSError:
            self.close()
            raise

    def restart_router(self) -> None:
        self._hosts.remove("router")
        self._hosts.add("router")
        space = self._space("router")
        inside = self._space(self._inside)
        run(
            "ip",
            "link",
            "add",
            "eth1",
            "netns",
            space,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            inside,
        )
        for name, device, address in ((space, "eth1", 1), (inside, "eth0", 2)):
            run("ip", "-n", name, "addr", "add", f"{self._network}.{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")

        run("ip", "-n", inside, "link", "set", "lo", "up")
        run("ip", "-n", inside, "route", "add", "default", "via", f"{self._network}.1")
        self._in("router", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        subprocess.run(
            (*self.prefix("router"), "nft", "-f", "-"),
            input=_RULES,
            text=True,
            check=True,
            timeout=20,
        )

    def prefix(self, name: str) -> tuple[str, ...]:
        """The command prefix that runs a command on a host; it replaces itself with the command."""
        return ("ip", "netns", "exec", self._space(name))

    def close(self) -> None:
        subprocess.run(
            ("ip", "netns", "del", self._space(self._inside)), capture_output=True, check=False
        )
        self._hosts.close()

    def _in(self, name: str, *command: str) -> None:
        run(*self.prefix(name), *command)

    def _space(self, name: str) -> str:
        return self._hosts.prefix(name)[-1]
