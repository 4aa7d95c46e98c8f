"""Network namespaces on one bridge, each acting as a host. Packets from and to a host can be
dropped.

Nothing outside the namespaces and their bridge is changed. Needs root, ``ip`` and ``nft``.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.addresses import NETWORKS, number


class Namespaces:
    """``names``: the names of the hosts. The tests have an address on the same network, ``own``.
    ``number``: must be unique among the tests."""

    def __init__(self, names: Sequence[str]) -> None:
        self.number = number(NETWORKS)
        self._bridge = f"mgb{self.number}"
        self._prefix = f"mg{self.number}"
        network = f"10.232.{self.number}"
        self.network = f"{network}.0/24"
        self.own = f"{network}.254"
        self.addresses = {name: f"{network}.{index}" for index, name in enumerate(names, 1)}
        self._cut: set[str] = set()

    def open(self) -> None:
        """Raises ``OSError`` if namespaces cannot be made."""
        self.close()  # left by a killed test
        try:
            run("ip", "link", "add", self._bridge, "type", "bridge")
            run("ip", "addr", "add", f"{self.own}/24", "dev", self._bridge)
            run("ip", "link", "set", self._bridge, "up")
            for name in self.addresses:
                self.add(name)
        except OSError:
            self.close()
            raise

    def add(self, name: str) -> None:
        """Make one of the hosts, by ``open`` or after ``remove``."""
        space = self._space(name)
        address = self.addresses[name]
        outer = self._outer(address)
        run("ip", "netns", "add", space)
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", outer, "master", self._bridge, "up")
        run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")

    def remove(self, name: str) -> None:
        """Remove a host with everything on it; no peer is notified."""
        run("ip", "link", "del", self._outer(self.addresses[name]))
        run("ip", "netns", "del", self._space(name))

    def prefix(self, name: str) -> tuple[str, ...]:
        """The command prefix that runs a command in the namespace; it replaces itself with the
        command."""
        return ("ip", "netns", "exec", self._space(name))

    def cut(self, name: str) -> None:
        """Drop every packet from and to other hosts. No connection is closed."""
        nft = (*self.prefix(name), "nft")
        run(*nft, "add", "table", "inet", "cut")
        self._cut.add(name)
        for chain, direction in (("input", "iif"), ("output", "oif")):
            hook = f"{{ type filter hook {chain} priority 0 ; policy drop ; }}"
            run(*nft, "add", "chain", "inet", "cut", chain, hook)
            run(*nft, "add", "rule", "inet", "cut", chain, direction, "lo", "accept")

    def heal(self, name: str) -> None:
        if name in self._cut:
            run(*self.prefix(name), "nft", "delete", "table", "inet", "cut")
            self._cut.discard(name)

    def close(self) -> None:
        for name, address in self.addresses.items():
            # Delete the link first: a deleted namespace releases its links only later.
            subprocess.run(
                ("ip", "link", "del", self._outer(address)), capture_output=True, check=False
            )
            subprocess.run(
                ("ip", "netns", "del", self._space(name)), capture_output=True, check=False
            )
        subprocess.run(("ip", "link", "del", self._bridge), capture_output=True, check=False)

    def _outer(self, address: str) -> str:
        """The bridge end of its link."""
        return f"{self._prefix}v{address.rpartition('.')[2]}"

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"


def run(*command: str) -> None:
    """Raises ``OSError`` with the output of the command."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        raise OSError(f"`{' '.join(command)}`: {done.stderr.strip() or done.stdout.strip()}")
