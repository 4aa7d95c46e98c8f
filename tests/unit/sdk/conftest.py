"""Fixtures for tests of the Python client: a fake manager with the real API."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "manager" / "api"))

from fake_manager import FakeManager


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with FakeManager() as running:
        yield running
