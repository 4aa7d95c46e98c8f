"""Runs the real commands as processes of their own, and looks at what they leave on the machine."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from moorage.sdk import Client
from tests.free_ports import free_port

WITHIN_S = 60.0


def processes() -> dict[int, dict[str, str]]:
    """Live processes with their environment; zombies (nobody may be there to reap them) are dead."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            environ = (entry / "environ").read_bytes().decode(errors="replace")
        except (OSError, IndexError):
            continue
        if state != "Z":
            found[int(entry.name)] = dict(e.partition("=")[::2] for e in environ.split("\0") if "=" in e)
    return found


def kernels_below(home: Path) -> dict[int, str]:
    """Processes of kernels whose work directory is below ``home``, with their kernel id."""
    found = {}
    for pid, env in processes().items():
        if "MOORAGE_KERNEL_ID" in env:
            try:
                below = os.readlink(f"/proc/{pid}/cwd").startswith(str(home))
            except OSError:
                continue
            if below:
                found[pid] = env["MOORAGE_KERNEL_ID"]
    return found


class Platform:
    """Commands over one state directory. ``start("manager")``, ``kill("agent")``, ``url``, ``openai_url``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        api, link, openai, internal = (free_port() for _ in range(4))
        self.url, self.openai_url = f"http://127.0.0.1:{api}", f"http://127.0.0.1:{openai}/v1"
        self.internal_url = f"http://127.0.0.1:{internal}"
        ports = 24000 + os.getpid() % 100 * 40
        self.env = os.environ | {
            "MOORAGE_HOME": str(home),
            "MOORAGE_MANAGER__LISTEN": f"127.0.0.1:{api}",
            "MOORAGE_MANAGER__LINK_LISTEN": f"127.0.0.1:{link}",
            "MOORAGE_AGENT__MANAGER": f"127.0.0.1:{link}",
            "MOORAGE_AGENT__ID": "node-1",
            "MOORAGE_AGENT__PORT_RANGE": f"{ports}-{ports + 39}",
            "MOORAGE_PROXY__LISTEN": f"127.0.0.1:{openai}",
            "MOORAGE_PROXY__INTERNAL_LISTEN": f"127.0.0.1:{internal}",
            "MOORAGE_PROXY__MANAGER": f"127.0.0.1:{link}",
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def key(self) -> str:
        return (self.home / "admin-key").read_text().strip()

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def client(self) -> Client:
        return Client(self.url, self.key)

    def run(self, *words: str, timeout: float = WITHIN_S) -> subprocess.CompletedProcess[str]:
        """A command to its end."""
        command = [sys.executable, "-m", "moorage", *words]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=timeout, check=False
        )

    def start(self, name: str, *more: str) -> None:
        log = (self.home / f"{name}.out").open("ab")
        command = [sys.executable, "-m", "moorage", name, *more]
        self._running[name] = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        log.close()

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """kill -9, and wait until it is dead."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> int:
        """SIGTERM; returns the exit code."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(WITHIN_S)

    def output(self, name: str) -> str:
        return (self.home / f"{name}.out").read_text()

    def close(self) -> None:
        for name in list(self._running):
            try:
                self.stop(name)
            except subprocess.TimeoutExpired:
                self.kill(name)
        for pid in kernels_below(self.home):
            os.kill(pid, signal.SIGKILL)


async def until(what: str, look: Callable[[], Coroutine[Any, Any, Any]], within_s: float = WITHIN_S) -> Any:
    """Look until the answer is true; what was raised meanwhile is shown when time is up."""
    end, last = time.monotonic() + within_s, "it was never true"
    while time.monotonic() < end:
        try:
            if found := await look():
                return found
        except Exception as error:  # noqa: BLE001 - anything may be down while we look
            last = repr(error)
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {within_s:g} s: {what} ({last})")
