"""A database in virtual time for all seeds, and the log switched off: a seed tells its own story."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import structlog

from .database import Postgres


@pytest_asyncio.fixture
async def postgres(empty_database: str) -> AsyncIterator[Postgres]:
    made = await Postgres.prepare(empty_database)
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)
