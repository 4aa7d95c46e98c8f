"""The places that all tests of clients share, and the table of their results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.clients.checks import Place
from tests.clients.places import places
from tests.clients.results import Results


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def everywhere() -> AsyncIterator[list[Place]]:
    async with places() as found:
        yield found


@pytest.fixture(scope="session")
def results() -> Iterator[Results]:
    found = Results()
    yield found
    found.write()
