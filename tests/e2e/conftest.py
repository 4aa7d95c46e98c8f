"""A whole platform of real processes, and a tiny real model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.demo_model import write_tiny_gguf

from .parts import Platform, kernels_below


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    made = Platform(tmp_path)
    yield made
    made.close()
    assert kernels_below(tmp_path) == {}


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """``fairlead up``, shared by the tests of a module."""
    home = tmp_path_factory.mktemp("up")
    made = Platform(home)
    made.start("up")
    yield made
    made.close()
    assert kernels_below(home) == {}
