"""The agent daemon: imports, settings and startup errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIST_IMPORTS = """
import sys
from moorage.server.agent_daemon import hide_optional_imports
hide_optional_imports()
import moorage.agent, moorage.common.config.logging, moorage.server.process
print(*{name.partition(".")[0] for name, module in sys.modules.items() if module is not None})
"""


def test_agent_imports_no_heavy_packages() -> None:
    result = subprocess.run(
        [sys.executable, "-c", LIST_IMPORTS], capture_output=True, text=True, check=True
    )
    heavy = {
        "typer", "click", "rich",  # command line
        "pydantic",  # settings and requests
        "aiohttp",  # services and metrics
        "cryptography",  # registration and renewal
        "docker", "requests", "h11", "prometheus_client",
        "asyncpg", "sqlalchemy", "alembic",  # manager
    }  # fmt: skip
    assert not heavy & set(result.stdout.split())


def test_large_settings_reach_the_daemon(tmp_path: Path) -> None:
    # More than a pipe buffer holds.
    labels = "".join(f'l{number} = "{"x" * 1000}"\n' for number in range(200))
    config = tmp_path / "moorage.toml"
    config.write_text(f'[agent]\nid = "not/a/name"\n[agent.labels]\n{labels}')
    command = [
        sys.executable,
        "-m",
        "moorage",
        "agent",
        "--home",
        str(tmp_path),
        "--config",
        str(config),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, "is not a valid agent name" in result.stderr) == (2, True), (
        result.stderr
    )


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        (["agent.id=not/a/name"], 2, "agent.id = 'not/a/name' is not a valid agent name"),
        (["agent.manager=192.0.2.1:8701"], 2, "has not joined"),
        (["agent.inventory=magic"], 2, "magic"),
        (["agent.colour=red"], 2, "agent.colour"),
    ],
)
def test_startup_errors_are_one_line(
    settings: list[str], code: int, message: str, tmp_path: Path
) -> None:
    overrides = [argument for setting in settings for argument in ("--set", setting)]
    command = [sys.executable, "-m", "moorage", "agent", "--home", str(tmp_path), *overrides]
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    result = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (code, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("moorage: ")
    assert message in line
