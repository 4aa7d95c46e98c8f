"""Fixtures for command line tests: a fake manager with the real API, and ``moorage`` calls."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from moorage.cli import app

sys.path.insert(0, str(Path(__file__).parents[1] / "sdk"))

from fake_manager import KEY, FakeManager
from invoke import Run

# The runner would rebuild the tree of all commands for each command line, which takes 50 ms.
_command = cache(get_command)


@pytest.fixture(autouse=True)
def trusted_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake manager has no state directory, so no command would find its socket."""
    monkeypatch.setenv("MOORAGE_INSECURE_LOOPBACK", "1")


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with FakeManager() as running:
        yield running


@pytest.fixture
def moorage(manager: FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line: ``moorage("ps", "-o", "json")``. The environment configures the
    connection."""
    env = {
        "MOORAGE_HOME": str(tmp_path / "home"),
        "MOORAGE_URL": manager.url,
        "MOORAGE_API_KEY": KEY,
        "MOORAGE_OPENAI_URL": manager.openai_url,
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": None,
        "FORCE_COLOR": None,
    }

    monkeypatch.setattr("typer.testing._get_command", _command)

    def call(*args: str, stdin: str = "", **variables: str | None) -> Result:
        result = CliRunner().invoke(
            app, list(args), env=env | variables, input=stdin, catch_exceptions=False
        )
        assert "Traceback" not in result.stderr
        return result

    return call
