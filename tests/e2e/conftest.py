"""Fixtures: a complete platform of real processes, and a tiny real model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.demo.model import write_tiny_gguf

from .harness import Platform, kernels_below


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture
def platform(home: Path, migrated_database: str) -> Iterator[Platform]:
    """A separate platform, for a test that kills daemons, needs settings or starts more daemons.
    Its database already exists, which saves a third of the work of a start."""
    running = Platform(home)
    running.env["MOORAGE_MANAGER__DSN"] = migrated_database
    yield running
    running.close()
    assert kernels_below(home) == {}
