"""The files in deploy/cluster and deploy/compose: that their settings exist, that their file names
and other names agree, and where the services listen.

Docker Compose validates its files in tests/containers, where it is installed; here their meaning is
checked.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from moorage import __main__
from moorage.cli import app
from moorage.common.config.loader import load
from moorage.common.model.addresses import is_loopback, split_address

assert __main__.main  # it adds the commands of the daemons
DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "cluster.yaml").read_text())
SINGLE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
TLS: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "tls.yaml").read_text())
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
        (tmp_path / name).write_text(
            "postgresql://moorage@one/moorage" if name == "dsn" else "x" * 24
        )

    environment = {
        name: value.replace("/run/secrets", str(tmp_path)) for name, value in environment.items()
    }
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


def interpolated(text: str, **variables: str) -> str:
    """With the values of variables or their defaults, as in Compose."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1], found[2]), text)


def listens(service: dict[str, Any], **variables: str) -> dict[str, str]:
    """The addresses on which a service listens, by the option that sets them."""
    words = [interpolated(word, **variables) for word in service["command"]]
    pairs = pairwise(words)
    return {option: split_address(value)[0] for option, value in pairs if option.endswith("listen")}


@pytest.mark.parametrize("file", [SINGLE, COMPOSE], ids=["compose.yaml", "cluster.yaml"])
@pytest.mark.parametrize("name", OURS)
def test_plain_http_listens_on_loopback_until_told_otherwise(
    file: dict[str, Any], name: str
) -> None:
    service = file["services"][name]
    assert is_loopback(listens(service)["--listen"])
    assert listens(service, LISTEN="192.0.2.1")["--listen"] == "192.0.2.1"


def test_what_listens_on_all_addresses_speaks_tls(tmp_path: Path) -> None:
    """Links use mTLS, which is on if they leave loopback; the API and the proxy use tls.yaml."""
    for file in (SINGLE, COMPOSE):
        for name in OURS:
            plain = file["services"][name]
            over = TLS["services"][name]
            options = [word for word in plain["command"] if word.startswith("--")]
            assert [word for word in over["command"] if word.startswith("--")] == options
            environment = (file.get("x-moorage") or {}).get("environment", {}) | over["environment"]
            secrets(tmp_path, (*TLS["secrets"], "etcd-password"))
            given = {
                key: value.replace("/run/secrets", str(tmp_path))
                for key, value in environment.items()
            }
            settings = load(None, given, {}).settings
            assert settings.common.link_tls == "auto"
            ours = settings.manager if name == "manager" else settings.proxy
            assert ours.tls_certificate == tmp_path / "tls-certificate"
            assert ours.tls_key == tmp_path / "tls-key"
            assert set(over["secrets"]) == set(TLS["secrets"])


def test_postgres_of_one_machine_listens_on_loopback() -> None:
    assert "listen_addresses=127.0.0.1" in SINGLE["services"]["postgres"]["command"]
