"""Fixtures of the simulation: one database in virtual time for all seeds, and no logging, because a
simulation keeps its own log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import structlog

from tests.databases import DatabaseServer

from .database import Postgres


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def virtual_template(database_server: DatabaseServer) -> AsyncIterator[str]:
    """The name of a migrated database in virtual time: a migration takes more CPU time than most of
    these tests do."""
    async with database_server.new_database() as dsn:
        await Postgres.prepare(dsn)
        yield urlsplit(dsn).path.removeprefix("/")


@pytest_asyncio.fixture(loop_scope="session")
async def virtual_database(
    database_server: DatabaseServer, virtual_template: str
) -> AsyncIterator[str]:
    async with database_server.new_database(virtual_template) as dsn:
        yield dsn


@pytest_asyncio.fixture
async def postgres(virtual_database: str) -> AsyncIterator[Postgres]:
    postgres = await Postgres.connect(virtual_database)
    yield postgres
    await postgres.close()


@pytest.fixture(autouse=True)
def no_logging() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)
