"""A whole platform of real processes, and a tiny real model."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.demo.model import write_tiny_gguf

from .parts import Platform, kernels_below


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    made = Platform(home)
    yield made
    made.close()
    assert kernels_below(home) == {}


@pytest.fixture(scope="module")
def one_node(reachable_dir: Path) -> Iterator[Platform]:
    """``moorage up``, shared by the tests of a module."""
    home = Path(tempfile.mkdtemp(prefix="up-", dir=reachable_dir))
    home.chmod(0o711)
    made = Platform(home)
    made.start("up")
    yield made
    made.close()
    assert kernels_below(home) == {}
