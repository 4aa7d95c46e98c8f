from collections.abc import Iterator

import pytest
from rest_manager import RestManager


@pytest.fixture
def manager() -> Iterator[RestManager]:
    with RestManager() as running:
        yield running
