"""A harness that runs the real commands as processes, and inspects the processes that they leave
behind."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from moorage.sdk import Client
from tests.addresses import agent_ports, free_port, port_range
from tests.databases import copied_postgres
from tests.forked_command import run_forked
from tests.kernel_networks import remove_networks
from tests.previous_release import without_newer_settings

TIMEOUT_S = 60.0
EXAMPLES = Path(__file__).parents[2] / "examples"
# Lines that no component may write, whatever happens to it: faults of ours that only a log shows.
_FAULTS = re.compile(
    r"Traceback \(most recent call last\)|Exception in callback|never retrieved|was never awaited"
    r"|Task was destroyed|Unhandled exception"
    r"|^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\.cc:\d+\]"  # from gRPC itself
)
_CONTEXT = 40  # lines shown after a match


def processes() -> dict[int, dict[str, str]]:
    """Live processes with their environment. Zombies are counted as dead, because some machines
    never reap orphans."""
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
            found[int(entry.name)] = dict(
                e.partition("=")[::2] for e in environ.split("\0") if "=" in e
            )

    return found


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the loader and Python read before a program starts, which is too early for
    a forked one."""
    return {
        name: value for name, value in environment.items() if name.startswith(("LD_", "PYTHON"))
    }


def known_to_its_release(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the settings that a program of the previous release refuses as unknown."""
    if is_of_this_tree(environment):
        return dict(environment)
    return without_newer_settings(environment)


def is_of_this_tree(environment: Mapping[str, str]) -> bool:
    """Whether this environment makes a program the one that this process would start."""
    return read_at_start(environment) == read_at_start(os.environ)


@cache
def prepared_database() -> Path:
    """The directory of a stopped Postgres with a migrated database. Creating one takes 2 CPU
    seconds."""
    folder = Path(tempfile.mkdtemp(prefix="moorage-test-"))
    folder.chmod(0o711)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, "-m", "moorage", "db", "upgrade"]
    subprocess.run(
        command, env=os.environ | {"MOORAGE_HOME": str(folder)}, check=True, capture_output=True
    )
    postgres = folder / "postgres"
    for name in ("port", "postgres.log"):
        (postgres / name).unlink()

    return postgres


def kernels_below(home: Path) -> dict[int, str]:
    """Kernel programs (without their shims) with a working directory below ``home``: kernel ids by
    pid."""
    found = {}
    for pid, env in processes().items():
        if "MOORAGE_KERNEL_ID" in env and "MOORAGE_SHIM" not in env:
            try:
                below = os.readlink(f"/proc/{pid}/cwd").startswith(str(home))
            except OSError:
                continue

            if below:
                found[pid] = env["MOORAGE_KERNEL_ID"]

    return found


class Platform:
    """Components and commands that share one state directory.

    ``start("manager")`` starts a daemon, ``kill("agent")`` kills it, ``run("ps")`` runs a command.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        api, link, openai, internal = (free_port() for _ in range(4))
        self.url = f"http://127.0.0.1:{api}"
        self.openai_url = f"http://127.0.0.1:{openai}/v1"
        self.internal_url = f"http://127.0.0.1:{internal}"
        self.link = f"127.0.0.1:{link}"
        self.env = os.environ | {
            "MOORAGE_HOME": str(home),
            "MOORAGE_MANAGER__LISTEN": f"127.0.0.1:{api}",
            "MOORAGE_MANAGER__LINK_LISTEN": f"127.0.0.1:{link}",
            "MOORAGE_AGENT__MANAGER": f"127.0.0.1:{link}",
            "MOORAGE_AGENT__ID": "node-1",
            "MOORAGE_AGENT__REPORT_INTERVAL_S": "1",
            "MOORAGE_AGENT__STATS_INTERVAL_S": "1",  # usage, and progress reported by programs
            "MOORAGE_AGENT__PORT_RANGE": port_range(agent_ports()),
            # A test that kills everything would leave mounts below its folder; tests/isolation
            # covers them.
            "MOORAGE_AGENT__PROCESS_DISK": "0",
            "MOORAGE_PROXY__LISTEN": f"127.0.0.1:{openai}",
            "MOORAGE_PROXY__INTERNAL_LISTEN": f"127.0.0.1:{internal}",
            "MOORAGE_PROXY__MANAGER": f"127.0.0.1:{link}",
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._checked: dict[Path, int] = {}  # lines of each log

    @property
    def key(self) -> str:
        return (self.home / "admin-key").read_text().strip()

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def client(self) -> Client:
        return Client(self.url, self.key)

    def run(
        self, *arguments: str, timeout: float = TIMEOUT_S, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to completion. Without ``stdin``, it inherits this process's input."""
        if not is_of_this_tree(self.env):
            command = [sys.executable, "-m", "moorage", *arguments]
            return subprocess.run(
                command,
                env=known_to_its_release(self.env),
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
                input=stdin,
            )

        if stdin is None:
            return run_forked(arguments, self.env, timeout)

        with tempfile.TemporaryFile("w+") as given:
            given.write(stdin)
            given.seek(0)
            return run_forked(arguments, self.env, timeout, stdin=given.fileno())

    def start(
        self,
        name: str,
        *arguments: str,
        env: dict[str, str] | None = None,
        known_as: str = "",
        prefix: Sequence[str] = (),
    ) -> None:
        """Start a daemon in the background, with additional variables. Its output goes to a file,
        see ``output``. ``known_as``: the name for a second daemon of the same kind. ``prefix``:
        runs its command elsewhere."""
        known_as = known_as or name
        if name == "up":
            self.forget_addresses()

        log = (self.home / f"{known_as}.out").open("ab")
        command = [*prefix, sys.executable, "-m", "moorage", name, *arguments]
        environ = known_to_its_release(self.env | (env or {}))
        if (
            name in ("up", "manager")
            and is_of_this_tree(environ)
            and "MOORAGE_MANAGER__DSN" not in environ
        ):
            self.copy_prepared_database()

        self._running[known_as] = subprocess.Popen(
            command, env=environ, cwd=self.home, stdout=log, stderr=log
        )
        log.close()

    def copy_prepared_database(self) -> None:
        """Provide an empty, migrated database for the first start, as if this platform had created
        it."""
        if not (self.home / "postgres").exists():
            copied_postgres(prepared_database(), self.home / "postgres")

    def forget_addresses(self) -> None:
        """The file that the last ``moorage up`` left here says nothing about the next one."""
        (self.home / "connection.json").unlink(missing_ok=True)

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """Send SIGKILL and wait for the exit."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> int:
        """Send SIGTERM and return the exit code."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(TIMEOUT_S)

    async def wait_until_ready(self) -> None:
        """Wait until commands find the manager and it answers. With ``up``, agent and proxy are
        connected by then."""
        connection = self.home / "connection.json"

        async def is_known() -> bool:
            return "url" in json.loads(await asyncio.to_thread(connection.read_text))

        await until("commands find the manager", is_known)

        async def is_healthy() -> bool:
            async with self.client() as client:
                return (await client.health()).status == "ok"

        await until("the manager answers", is_healthy)

    def output(self, name: str) -> str:
        return (self.home / f"{name}.out").read_text()

    def close(self) -> None:
        for name, process in list(self._running.items()):
            try:
                self.stop(name)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        deadline = time.monotonic() + TIMEOUT_S
        while (left := kernels_below(self.home)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

            time.sleep(0.02)

        remove_networks(self.home)
        self.check_logs()

    def check_logs(self) -> None:
        """Raises ``AssertionError`` for a fault that has appeared in a log since the last check."""
        for log in sorted(self.home.glob("*.out")):
            lines = log.read_text(errors="replace").splitlines()
            first = self._checked.get(log, 0)
            self._checked[log] = len(lines)
            for number, line in enumerate(lines[first:], first):
                if _FAULTS.search(line):
                    found = "\n".join(lines[max(0, number - 3) : number + _CONTEXT])
                    raise AssertionError(f"{log.name}, line {number + 1}:\n{found}")


async def until(
    description: str, poll: Callable[[], Coroutine[Any, Any, Any]], timeout_s: float = TIMEOUT_S
) -> Any:
    """Call ``poll`` until its result is true, and return it. On timeout, the last exception is
    shown."""
    deadline = time.monotonic() + timeout_s
    last = "it was never true"
    while time.monotonic() < deadline:
        try:
            if result := await poll():
                return result
        except Exception as error:  # noqa: BLE001 - any component may be down meanwhile
            last = repr(error)

        await asyncio.sleep(0.05)

    raise AssertionError(f"not within {timeout_s:g} s: {description} ({last})")


def example(platform: Platform, name: str, *arguments: str) -> str:
    """The output of an example."""
    command = [sys.executable, str(EXAMPLES / name), platform.url, platform.key, *arguments]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=platform.env
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
