"""Origins of settings: an error names the option that supplied the value, before anything
starts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.forked_command import run_forked

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import Settings
from moorage.common.model.errors import ConfigError
from moorage.server.all_in_one import AllInOne


def moorage(*args: str, home: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    return run_forked(args, env | {"MOORAGE_HOME": str(home)})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("up --openai-listen foo", "proxy.listen = 'foo' from flag --openai-listen: "),
        ("up --listen foo", "manager.listen = 'foo' from flag --listen: "),
        ("up --inventory nope", "agent.inventory = 'nope' from flag --inventory: "),
        ("up --set agent.inventory=nope", "agent.inventory = 'nope' from flag --set: "),
        ("up --set agent.port_range=foo", "agent.port_range = 'foo' from flag --set: "),
        ("up --set agent.reserved_mem=much", "agent.reserved_mem = 'much' from flag --set: "),
        ("up --set manager.lissten=x", "unknown setting 'manager.lissten' from flag --set"),
        (
            "up --listen 127.0.0.1:0 --set manager.listen=foo",
            "manager.listen = 'foo' from flag --set: ",
        ),
        ("manager --link-listen foo", "manager.link_listen = 'foo' from flag --link-listen: "),
        ("agent --manager foo", "agent.manager = 'foo' from flag --manager: "),
        ("agent --runtime !", "from flag --runtime: "),
        (
            "proxy --internal-listen foo",
            "proxy.internal_listen = 'foo' from flag --internal-listen: ",
        ),
        ("proxy --manager foo", "proxy.manager = 'foo' from flag --manager: "),
        ("simulate --manager foo", "agent.manager = 'foo' from flag --manager: "),
    ],
)
def test_errors_name_the_option(tmp_path: Path, args: str, message: str) -> None:
    result = moorage(*args.split(), home=tmp_path)
    assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    assert not list(tmp_path.iterdir()), "nothing has started"


def test_config_show_names_the_origin(tmp_path: Path) -> None:
    given = ("--home", str(tmp_path), "--set", "agent.port_range=21000-21999")
    shown = json.loads(
        moorage("config", "show", "--origin", "-o", "json", *given, home=tmp_path).stdout
    )
    origins = shown["common.home"]["origin"], shown["agent.port_range"]["origin"]
    assert origins == ("flag --home", "flag --set")


def test_name_of_the_agent_is_checked_before_anything_starts(tmp_path: Path) -> None:
    settings = Settings.model_validate({"agent": {"id": "not/a/name"}})
    with pytest.raises(ConfigError, match=r"agent\.id = 'not/a/name'"):
        AllInOne(settings, clock=SystemClock(), link_token="x", home=tmp_path)
