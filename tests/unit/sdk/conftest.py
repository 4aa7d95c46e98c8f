"""Fixtures for tests of the Python client: a fake manager with the real API."""

from collections.abc import Iterator

import pytest
from fake_manager import FakeManager


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with FakeManager() as running:
        yield running
