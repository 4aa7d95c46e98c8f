"""Fixtures: a complete platform of real processes, and a tiny real model."""

from __future__ import annotations

import tempfile
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
def platform(home: Path) -> Iterator[Platform]:
    running = Platform(home)
    yield running
    running.close()
    assert kernels_below(home) == {}


@pytest.fixture(scope="module")
def one_node(reachable_dir: Path) -> Iterator[Platform]:
    """A running ``moorage up``, shared by the tests of a module."""
    home = Path(tempfile.mkdtemp(prefix="up-", dir=reachable_dir))
    home.chmod(0o711)
    running = Platform(home)
    running.start("up")
    yield running
    running.close()
    assert kernels_below(home) == {}
