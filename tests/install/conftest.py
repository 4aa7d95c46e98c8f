"""The wheel of this checkout, and environments in which it is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.wheel import build

from .environments import Environment


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def client_only(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """The wheel without an extra."""
    made = Environment.make(tmp_path_factory.mktemp("client") / "env", sys.executable)
    made.install(str(wheel))
    return made
