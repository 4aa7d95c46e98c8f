"""Files of deploy/cluster and deploy/compose/cluster.yaml: settings that exist, files and names that agree.

Docker Compose validates the second in tests/containers, where it is installed; here its meaning is checked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from moorage import __main__
from moorage.cli import app
from moorage.common.config.loader import load

assert __main__.main  # it adds the commands of the daemons
DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "cluster.yaml").read_text())
OURS = ("manager", "proxy")


def secrets(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (folder / name).write_text("x" * 24)


def test_settings_of_a_machine_are_valid(tmp_path: Path) -> None:
    text = (DEPLOY / "cluster" / "moorage.toml").read_text()
    secrets(tmp_path, ("dsn", "ca-secret", "etcd-password"))
    (tmp_path / "dsn").write_text("postgresql://moorage:x@one:5433,two:5433/moorage")
    file = tmp_path / "moorage.toml"
    file.write_text(text.replace("/etc/moorage", str(tmp_path)))
    settings = load(file, {}, {}).settings
    assert settings.manager.dsn is not None
    assert settings.etcd.address.count(",") == 2
    assert settings.proxy.workers == 2


@pytest.mark.parametrize("service", OURS)
def test_services_have_valid_settings_and_commands(service: str, tmp_path: Path) -> None:
    found = COMPOSE["services"][service]
    environment = {name: re.sub(r"\$\{HOST:\?[^}]*\}", "one", value)
                   for name, value in found["environment"].items()}  # fmt: skip
    for name in found["secrets"]:
        (tmp_path / name).write_text("postgresql://moorage@one/moorage" if name == "dsn" else "x" * 24)
    environment = {name: value.replace("/run/secrets", str(tmp_path)) for name, value in environment.items()}
    settings = load(None, environment, {}).settings
    assert settings.etcd.user == "moorage"
    result = CliRunner().invoke(app, [found["command"][0], "--help"])
    assert result.exit_code == 0
    options = [word for word in found["command"] if word.startswith("--")]
    assert all(option in result.output for option in options)


def test_what_services_refer_to_exists() -> None:
    services = COMPOSE["services"]
    used = {name for one in services.values() for name in one.get("secrets", [])}
    assert used == set(COMPOSE["secrets"])
    volumes = {volume.split(":")[0] for one in services.values() for volume in one.get("volumes", [])
               if not volume.startswith(("/", "."))}  # fmt: skip
    assert volumes == set(COMPOSE["volumes"])
    header = (DEPLOY / "compose" / "cluster.yaml").read_text()
    profiles = {name for one in services.values() for name in one["profiles"]}
    [named] = re.findall(r"COMPOSE_PROFILES=(.*)", header)
    assert profiles <= set(re.findall(r"\w+", named))


def test_members_of_etcd_are_those_that_managers_use() -> None:
    lines = (DEPLOY / "cluster" / "etcd.env").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    members = dict(member.split("=") for member in values["ETCD_INITIAL_CLUSTER"].split(","))
    assert {name: f"https://{name}:2380" for name in ("one", "two", "three")} == members
    for source in (
        (DEPLOY / "cluster" / "moorage.toml").read_text(),
        COMPOSE["x-moorage"]["environment"]["MOORAGE_ETCD__ADDRESS"],
    ):
        assert ",".join(f"{name}:2379" for name in members) in source
