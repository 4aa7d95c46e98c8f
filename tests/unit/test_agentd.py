"""The agent's own process: what is in it, and how it ends when it cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOK = """
import sys
import moorage.server.agent_daemon
sys.modules.update(dict.fromkeys(moorage.server.agent_daemon._UNUSED))
import moorage.agent, moorage.common.config.logging, moorage.server.process
print(*{name.partition(".")[0] for name, module in sys.modules.items() if module is not None})
"""


def test_it_holds_no_command_line_and_nothing_that_most_nodes_never_need() -> None:
    found = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    heavy = {
        "typer", "click", "rich",  # for people
        "pydantic",  # for settings and requests
        "aiohttp",  # for services and metrics
        "cryptography",  # for joining and renewing
        "docker", "requests", "h11", "prometheus_client",
        "asyncpg", "sqlalchemy", "alembic",  # the manager's
    }  # fmt: skip
    assert not heavy & set(found.stdout.split())


def test_settings_of_any_size_are_handed_over(tmp_path: Path) -> None:
    # More than a pipe holds: writing them there would have waited for itself.
    labels = "".join(f'l{number} = "{"x" * 1000}"\n' for number in range(200))
    config = tmp_path / "moorage.toml"
    config.write_text(f'[agent]\nid = "not/a/name"\n[agent.labels]\n{labels}')
    command = [sys.executable, "-m", "moorage", "agent", "--home", str(tmp_path), "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, "is not a name for an agent" in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        (["agent.id=not/a/name"], 2, "agent.id = 'not/a/name' is not a name for an agent"),
        (["agent.manager=192.0.2.1:8701"], 2, "has not joined"),
        (["agent.inventory=magic"], 2, "magic"),
        (["agent.colour=red"], 2, "agent.colour"),
    ],
)
def test_it_says_in_one_line_why_it_cannot_start(
    settings: list[str], code: int, words: str, tmp_path: Path
) -> None:
    sets = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "moorage", "agent", "--home", str(tmp_path), *sets]
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (code, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("moorage: ")
    assert words in line
