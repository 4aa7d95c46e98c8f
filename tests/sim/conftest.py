"""A database in virtual time for all seeds. Logging is off: a simulation keeps its own log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import structlog

from .database import Postgres


@pytest_asyncio.fixture
async def postgres(empty_database: str) -> AsyncIterator[Postgres]:
    postgres = await Postgres.prepare(empty_database)
    yield postgres
    await postgres.close()


@pytest.fixture(autouse=True)
def no_logging() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)
