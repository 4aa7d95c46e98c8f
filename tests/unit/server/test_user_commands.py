"""``moorage config show`` and ``moorage doctor``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from tests.addresses import free_port
from typer.testing import CliRunner

from moorage import __main__
from moorage.cli import app

assert __main__.main  # it adds the commands


def test_settings_as_json_have_their_own_types(tmp_path: Path) -> None:
    env = {"MOORAGE_HOME": str(tmp_path)}
    shown = json.loads(CliRunner().invoke(app, ["config", "show", "-o", "json"], env=env).stdout)
    assert shown["common.home"] == str(tmp_path)
    assert shown["manager.agent_addresses"] == []
    assert shown["agent.metrics_listen"] is None


@pytest.mark.parametrize("command", [("config", "show", "--origin"), ("doctor",)])
def test_yaml_says_what_json_says(tmp_path: Path, command: tuple[str, ...]) -> None:
    env = {"MOORAGE_HOME": str(tmp_path)}
    in_json, in_yaml = (
        CliRunner().invoke(app, [*command, "-o", form], env=env).stdout for form in ("json", "yaml")
    )
    assert in_json != in_yaml
    # The free space of the disk changes between the two runs.
    shown = (json.dumps(parsed) for parsed in (yaml.safe_load(in_yaml), json.loads(in_json)))
    first, second = (re.sub(r"[\d.]+GiB free", "free", text) for text in shown)
    assert first == second


@pytest.mark.parametrize("saved", [True, False])
def test_doctor_looks_where_the_manager_is(tmp_path: Path, saved: bool) -> None:
    address = f"127.0.0.1:{free_port()}"
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_URL": "" if saved else f"http://{address}"}
    if saved:
        (tmp_path / "connection.json").write_text(json.dumps({"url": f"http://{address}"}))
    shown = json.loads(CliRunner().invoke(app, ["doctor", "-o", "json"], env=env).stdout)
    [manager] = [check for check in shown if check["name"] == "manager"]
    assert manager["detail"] == f"nothing listens on {address}"
