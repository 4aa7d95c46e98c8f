"""The systemd units under a real systemd: they start, restart after a crash, and kernels survive
both."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.addresses import free_port

from .daemon_image import ensure
from .engine import PrivateEngine
from .polling import until
from .systemd_machine import Machine, missing_requirement

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(240)]
PROCESSES = """MOORAGE_AGENT__RUNTIMES='["process"]'"""
SETTINGS = """
common.link_tls = "on"
manager = {{ listen = "127.0.0.1:{api}", link_listen = "127.0.0.1:{link}" }}
agent = {{ manager = "127.0.0.1:{link}", docker = "off", id = "node-s" }}

[proxy]
manager = "127.0.0.1:{link}"
listen = "127.0.0.1:{openai}"
internal_listen = "127.0.0.1:{internal}"
"""


@pytest.fixture
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("api", "link", "openai", "internal")}


@pytest.fixture
def machine(
    docker_engine: PrivateEngine, reachable_dir: Path, ports: dict[str, int]
) -> Iterator[Machine]:
    if reason := missing_requirement():
        pytest.skip(reason)

    settings = SETTINGS.format(**ports)
    with contextlib.closing(docker_engine.api()) as api:
        ensure(api, reachable_dir)
        with tempfile.TemporaryDirectory(dir=reachable_dir) as folder:
            machine = Machine(api, Path(folder), settings)

        try:
            until(
                "the machine has booted",
                lambda: machine.run("systemctl", "is-system-running")[1].strip() == "running",
            )
            yield machine
        finally:
            machine.close()


class Moorage:
    """An administrator's ``moorage`` command, and the state of the units."""

    def __init__(self, machine: Machine, url: str) -> None:
        self.machine = machine
        self._url = url
        self._env = {"MOORAGE_HOME": "/var/lib/moorage", "MOORAGE_URL": url}

    def __call__(self, *arguments: str) -> str:
        code, output = self.machine.run("moorage", *arguments, **self._env)
        assert code == 0, output
        return output

    def json_list(self, command: str, key: str) -> list[dict[str, Any]]:
        """The list ``key`` in the JSON output of a command."""
        found: list[dict[str, Any]] = json.loads(self(*command.split(), "-o", "json"))[key]
        return found

    def agent(self) -> dict[str, Any]:
        found = self.json_list("agents", "agents")
        assert len(found) == 1
        return found[0]

    def systemctl(self, *arguments: str) -> str:
        code, output = self.machine.run("systemctl", *arguments)
        assert code == 0, output
        return output.strip()

    def unit_property(self, daemon: str, name: str) -> str:
        return self.systemctl("show", "-P", name, f"moorage-{daemon}")

    def kill(self, daemon: str) -> None:
        """Send SIGKILL, and wait until systemd has restarted the daemon."""
        pid = self.unit_property(daemon, "MainPID")
        assert self.machine.run("/bin/sh", "-c", f"kill -9 {pid}")[0] == 0
        until(
            f"the {daemon} is restarted",
            lambda: (
                self.unit_property(daemon, "ActiveState") == "active"
                and self.unit_property(daemon, "MainPID") not in ("0", pid)
            ),
        )

    def session_runs(self) -> bool:
        return [s["status"] for s in self.json_list("ps", "sessions")] == ["RUNNING"]

    def join(self) -> None:
        """Join the agent and the proxy, each under the user that it runs as."""
        outputs = [self("join-tokens", "create", *options) for options in ((), ("--proxy",))]
        tokens = [
            next(word for word in text.split() if word.startswith("mgj-")) for text in outputs
        ]
        for daemon, user, token in zip(
            ("agent", "proxy"), ("root", "moorage"), tokens, strict=True
        ):
            home = f"/var/lib/moorage-{daemon}"
            self.machine.run("install", "-d", "-m", "700", "-o", user, home)
            command = f"echo $TOKEN | moorage {daemon} join {self._url}"
            code, output = self.machine.run(
                "sh", "-c", command, user=user, MOORAGE_HOME=home, TOKEN=token
            )
            assert code == 0, output


def test_units_start_restart_and_keep_kernels(machine: Machine, ports: dict[str, int]) -> None:
    moorage = Moorage(machine, f"http://127.0.0.1:{ports['api']}")
    moorage.systemctl("start", "moorage-manager")
    until("the manager answers", lambda: moorage("agents") or True)
    moorage.join()

    # The unit offers only containers. /etc/moorage/agent.env overrides it.
    machine.run("/bin/sh", "-c", f"echo {quote(PROCESSES)} > /etc/moorage/agent.env")
    moorage.systemctl("start", "moorage-agent", "moorage-proxy")
    until("the agent is alive", lambda: moorage.agent()["status"] == "ALIVE")
    moorage("start", "--name", "dev", "--", "sh", "-c", "echo started; exec sleep 3600")

    # Daemon restarts and crashes do not affect the kernel.
    moorage.systemctl("restart", "moorage-agent")
    until("the agent is back", lambda: not moorage.agent()["draining"] and moorage.session_runs())
    moorage.systemctl("stop", "moorage-agent")
    assert moorage.agent()["draining"], "it sent the shutdown notice"
    moorage.systemctl("start", "moorage-agent")
    for part in ("agent", "proxy", "manager"):
        moorage.kill(part)

    until(
        "all daemons are back",
        lambda: moorage("exec", "dev", "--", "echo", "still here") == "still here\n",
    )
    assert moorage.session_runs()
    assert moorage("logs", "dev") == "started\n"
    with pytest.raises(HTTPError, match="401"):  # it has a route table
        urlopen(f"http://127.0.0.1:{ports['openai']}/v1/models", timeout=10)

    # A daemon that exits because of an invalid setting is not restarted, and logs the reason.
    machine.run("/bin/sh", "-c", "echo MOORAGE_AGENT__INVENTORY=nonsense >> /etc/moorage/agent.env")
    moorage.systemctl("restart", "moorage-agent")
    until("the unit has failed", lambda: moorage.unit_property("agent", "ActiveState") == "failed")
    assert (
        moorage.unit_property("agent", "ExecMainStatus"),
        moorage.unit_property("agent", "NRestarts"),
    ) == ("2", "0")
    _, output = machine.run("journalctl", "-u", "moorage-agent", "-n", "20", "--no-pager")
    assert "agent.inventory = 'nonsense'" in output
