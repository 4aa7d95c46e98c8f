"""deploy/kubernetes: its settings and commands exist (`make test-deploy` checks the rest)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from moorage.cli import app
from moorage.common.config.loader import load
from moorage.server.commands import daemons, database, join

__all__ = ["daemons", "database", "join"]  # they add the commands
ADDRESS = "192.0.2.1"
FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"


def containers() -> Iterator[dict[str, Any]]:
    for file in sorted((FOLDER / "base").glob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text()):
            pod = one.get("spec", {}).get("template", {}).get("spec", {})
            yield from [*pod.get("initContainers", []), *pod.get("containers", [])]


OURS = [one for one in containers() if one["image"] == "moorage"]


def test_every_daemon_can_read_the_shared_settings() -> None:
    """A file that only managers have would stop agents and proxies."""
    settings = load(FOLDER / "base" / "moorage.toml", {}, {}).settings
    assert settings.agent.runtimes == ("process",)


@pytest.mark.parametrize("container", OURS, ids=lambda one: one["name"])
def test_the_environment_has_settings_only(container: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text("postgresql://moorage@moorage-postgres/moorage")
    (tmp_path / "ca-secret").write_text("a passphrase")
    (tmp_path / "admin-key").write_text(f"mg-{'0' * 40}")
    ours = {
        one["name"]: one.get("value", ADDRESS)
        .replace("$(POD_IP)", ADDRESS)
        .replace("/run/secrets/moorage", str(tmp_path))
        for one in container.get("env", [])
        if one["name"].startswith("MOORAGE_")
    }
    origins = load(None, ours, {}).origins.values()
    assert sum(origin.startswith("env ") for origin in origins) == len(ours)


@pytest.mark.parametrize("container", OURS, ids=lambda one: one["name"])
def test_commands_exist(container: dict[str, Any]) -> None:
    arguments = container["args"]
    if container.get("command", [""])[0] == "sh":
        _, found, rest = arguments[0].partition("-m moorage ")
        arguments = rest.replace("\\\n", " ").split()
        if not found:
            return
    result = CliRunner().invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0, result.output
