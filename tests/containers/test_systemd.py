"""The units under a real systemd: they start, come back, and leave kernels alone, as operators are told."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.free_ports import free_port

from .booted import Machine, lacks
from .daemon_image import ensure
from .engine import PrivateEngine
from .waiting import until

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(240)]
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
def machine(docker_engine: PrivateEngine, reachable_dir: Path, ports: dict[str, int]) -> Iterator[Machine]:
    if reason := lacks():
        pytest.skip(reason)
    settings = SETTINGS.format(**ports)
    with contextlib.closing(docker_engine.api()) as api:
        ensure(api, reachable_dir)
        with tempfile.TemporaryDirectory(dir=reachable_dir) as folder:
            made = Machine(api, Path(folder), settings)
        try:
            until("it has booted", lambda: made.say("systemctl", "is-system-running")[1].strip() == "running")
            yield made
        finally:
            made.close()


class Moorage:
    """The command line of the machine's administrator, and what systemd says of the units."""

    def __init__(self, machine: Machine, url: str) -> None:
        self.machine, self._url = machine, url
        self._env = {"MOORAGE_HOME": "/var/lib/moorage", "MOORAGE_URL": url}

    def __call__(self, *words: str) -> str:
        code, said = self.machine.say("moorage", *words, **self._env)
        assert code == 0, said
        return said

    def look(self, words: str, what: str) -> list[dict[str, Any]]:
        """The list ``what`` of the answer to ``words``."""
        found: list[dict[str, Any]] = json.loads(self(*words.split(), "-o", "json"))[what]
        return found

    def agent(self) -> dict[str, Any]:
        found = self.look("agents", "agents")
        assert len(found) == 1
        return found[0]

    def systemctl(self, *words: str) -> str:
        code, said = self.machine.say("systemctl", *words)
        assert code == 0, said
        return said.strip()

    def of(self, part: str, what: str) -> str:
        return self.systemctl("show", "-P", what, f"moorage-{part}")

    def kill(self, part: str) -> None:
        """As rudely as the kernel does it, and wait until systemd has started it again."""
        pid = self.of(part, "MainPID")
        assert self.machine.say("/bin/sh", "-c", f"kill -9 {pid}")[0] == 0
        until(
            f"another {part} runs",
            lambda: self.of(part, "ActiveState") == "active" and self.of(part, "MainPID") not in ("0", pid),
        )

    def runs(self) -> bool:
        return [s["status"] for s in self.look("ps", "sessions")] == ["RUNNING"]

    def join(self) -> None:
        """Agent and proxy, each as the user that it runs as."""
        said = [self("join-tokens", "create", *more) for more in ((), ("--proxy",))]
        tokens = [next(word for word in text.split() if word.startswith("mgj-")) for text in said]
        for part, user, token in zip(("agent", "proxy"), ("root", "moorage"), tokens, strict=True):
            home = f"/var/lib/moorage-{part}"
            self.machine.say("install", "-d", "-m", "700", "-o", user, home)
            joining = ("moorage", part, "join", self._url, token)
            code, said = self.machine.say(*joining, user=user, MOORAGE_HOME=home)
            assert code == 0, said


def test_the_units(machine: Machine, ports: dict[str, int]) -> None:
    moorage = Moorage(machine, f"http://127.0.0.1:{ports['api']}")
    moorage.systemctl("start", "moorage-manager")
    until("the manager answers", lambda: moorage("agents") or True)
    moorage.join()
    moorage.systemctl("start", "moorage-agent", "moorage-proxy")
    until("the agent is there", lambda: moorage.agent()["status"] == "ALIVE")
    moorage("start", "--name", "dev", "--", "sh", "-c", "echo begun; exec sleep 3600")

    # What happens to daemons does not touch the kernel.
    moorage.systemctl("restart", "moorage-agent")
    until("the agent is back", lambda: not moorage.agent()["draining"] and moorage.runs())
    moorage.systemctl("stop", "moorage-agent")
    assert moorage.agent()["draining"], "it said goodbye"
    moorage.systemctl("start", "moorage-agent")
    for part in ("agent", "proxy", "manager"):
        moorage.kill(part)
    until("all are back", lambda: moorage("exec", "dev", "--", "echo", "still here") == "still here\n")
    assert moorage.runs()
    assert moorage("logs", "dev") == "begun\n"
    with pytest.raises(HTTPError, match="401"):  # it has a table to judge by
        urlopen(f"http://127.0.0.1:{ports['openai']}/v1/models", timeout=10)

    # What a wrong setting ended is not started again, and says why.
    machine.say("/bin/sh", "-c", "echo MOORAGE_AGENT__INVENTORY=nonsense > /etc/moorage/agent.env")
    moorage.systemctl("restart", "moorage-agent")
    until("it gave up", lambda: moorage.of("agent", "ActiveState") == "failed")
    assert (moorage.of("agent", "ExecMainStatus"), moorage.of("agent", "NRestarts")) == ("2", "0")
    _, said = machine.say("journalctl", "-u", "moorage-agent", "-n", "20", "--no-pager")
    assert "agent.inventory = 'nonsense'" in said
