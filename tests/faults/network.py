"""A network namespace with one wire to us: pulled, or made too thin for what goes through it.

Nothing outside the namespace and its own wire is touched. Needs root, ``ip`` and (to choke it) ``tc``.
"""

from __future__ import annotations

import os
import shutil
import subprocess


class CannotCut(Exception):
    """This machine lets us make no network namespace; the text says why."""


class Wire:
    """``prefix`` runs a command behind the wire; ``near`` and ``far`` are the addresses of its ends."""

    def __init__(self) -> None:
        number = os.getpid() % 60_000
        self.name, self._near_end, self._far_end = f"mg-{number}", f"fln{number}", f"flf{number}"
        net = f"10.231.{number % 250}"
        low = number // 250 % 63 * 4
        self.near, self.far = f"{net}.{low + 1}", f"{net}.{low + 2}"
        self.prefix = ("ip", "netns", "exec", self.name)
        self.can_choke = False

    def open(self) -> None:
        """Raises ``CannotCut``."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise CannotCut("it needs root and the program `ip`")
        try:
            _run("ip", "netns", "add", self.name)
            _run("ip", "link", "add", self._near_end, "type", "veth", "peer", "name", self._far_end)
            _run("ip", "link", "set", self._far_end, "netns", self.name)
            _run("ip", "addr", "add", f"{self.near}/30", "dev", self._near_end)
            _run("ip", "link", "set", self._near_end, "up")
            _run("ip", "-n", self.name, "addr", "add", f"{self.far}/30", "dev", self._far_end)
            _run("ip", "-n", self.name, "link", "set", "lo", "up")
            self.pull(False)
        except CannotCut:
            self.close()
            raise
        try:
            self.choke(True)
            self.choke(False)
            self.can_choke = True
        except CannotCut:
            pass

    def pull(self, out: bool) -> None:
        _run("ip", "-n", self.name, "link", "set", self._far_end, "down" if out else "up")

    def choke(self, on: bool) -> None:
        """1 kB/s with room for two packets: the rest is dropped."""
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
        for words in (("netns", "del", self.name), ("link", "del", self._near_end)):
            subprocess.run(("ip", *words), capture_output=True, check=False)


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except OSError as error:
        raise CannotCut(f"`{words[0]}` cannot be run: {error}") from error
    if done.returncode != 0:
        raise CannotCut(f"`{' '.join(words)}`: {done.stderr.strip() or done.stdout.strip()}")
