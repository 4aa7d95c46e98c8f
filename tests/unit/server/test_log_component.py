"""Daemon logs: the component that each daemon sets for its lines."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moorage.cli import app
from moorage.common.config import logging
from moorage.server import agent_daemon
from moorage.server.commands import daemons  # noqa: F401 - registers the commands


class SetUp(Exception):
    """Stops a daemon once it has set up its log. ``args``: the arguments that it passed."""


@pytest.fixture(autouse=True)
def stop_at_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    def setup(fmt: str, level: str, component: str = "cli") -> None:
        raise SetUp(fmt, level, component)

    monkeypatch.setattr(logging, "setup", setup)


@pytest.mark.parametrize("command", ["up", "manager", "agent", "proxy"])
def test_a_daemon_logs_as_itself(command: str, tmp_path: Path) -> None:
    arguments = [command, "--home", str(tmp_path), "--set", "common.log_format=json"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, SetUp), result.output
    assert result.exception.args == ("json", "info", command)


def test_the_process_of_the_agent_logs_as_agent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    common = {"log_format": "json", "log_level": "info"}
    given.write_bytes(
        pickle.dumps(([{"manager": "127.0.0.1:1"}], False, common, {}, tmp_path, "token", None))
    )
    monkeypatch.setattr(agent_daemon, "hide_optional_imports", lambda: None)

    with given.open("rb") as file:
        # The daemon closes the descriptor that it receives.
        monkeypatch.setattr(sys, "argv", ["agent", str(os.dup(file.fileno()))])
        with pytest.raises(SetUp) as stopped:
            agent_daemon.main()

    assert stopped.value.args == ("json", "info", "agent")
