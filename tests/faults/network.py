"""A network namespace with one virtual link to this one, which can be unplugged or throttled.

Nothing outside the namespace and its link is changed. Needs root, ``ip`` and, for throttling,
``tc``.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.addresses import NETWORKS, number


class NetworkFaultsUnavailable(Exception):
    """No network namespace can be created on this machine. The message states the cause."""


class NetworkLink:
    """``prefix`` runs a command in the namespace. ``near`` and ``far``: the addresses of the link's
    ends."""

    def __init__(self) -> None:
        place = number(NETWORKS)
        self.name = f"mg-{place}"
        self._near_end = f"fln{place}"
        self._far_end = f"flf{place}"
        self.near = f"10.231.{place}.1"
        self.far = f"10.231.{place}.2"
        self.prefix = ("ip", "netns", "exec", self.name)
        self.can_throttle = False

    def open(self) -> None:
        """Raises ``NetworkFaultsUnavailable``."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise NetworkFaultsUnavailable("it needs root and the program `ip`")

        self.close()  # left by a killed test
        try:
            _run("ip", "netns", "add", self.name)
            _run("ip", "link", "add", self._near_end, "type", "veth", "peer", "name", self._far_end)
            _run("ip", "link", "set", self._far_end, "netns", self.name)
            _run("ip", "addr", "add", f"{self.near}/30", "dev", self._near_end)
            _run("ip", "link", "set", self._near_end, "up")
            _run("ip", "-n", self.name, "addr", "add", f"{self.far}/30", "dev", self._far_end)
            _run("ip", "-n", self.name, "link", "set", "lo", "up")
            self.unplug(False)
        except NetworkFaultsUnavailable:
            self.close()
            raise

        try:
            self.throttle(True)
            self.throttle(False)
            self.can_throttle = True
        except NetworkFaultsUnavailable:
            pass

    def unplug(self, down: bool) -> None:
        _run("ip", "-n", self.name, "link", "set", self._far_end, "down" if down else "up")

    def throttle(self, on: bool) -> None:
        """1 kB/s with a queue of two packets; all others are dropped."""
        tc = ("ip", "netns", "exec", self.name, "tc", "qdisc")
        if on:
            _run(
                *tc,
                "add",
                "dev",
                self._far_end,
                "root",
                "tbf",
                "rate",
                "8kbit",
                "burst",
                "1600",
                "limit",
                "3200",
            )
        else:
            _run(*tc, "del", "dev", self._far_end, "root")

    def close(self) -> None:
        # Delete the link first: a deleted namespace releases it only later.
        for arguments in (("link", "del", self._near_end), ("netns", "del", self.name)):
            subprocess.run(("ip", *arguments), capture_output=True, check=False)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError as error:
        raise NetworkFaultsUnavailable(f"`{command[0]}` cannot be run: {error}") from error
    if done.returncode != 0:
        raise NetworkFaultsUnavailable(
            f"`{' '.join(command)}`: {done.stderr.strip() or done.stdout.strip()}"
        )
