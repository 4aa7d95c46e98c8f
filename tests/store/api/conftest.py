"""Fixtures for tests of the REST API: databases with two keys and a node, and the API over one of
them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.manager.api import app
from tests.databases import DatabaseServer, database_at, execute

from .served_api import Api, make_callers, serving_api


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template_of_the_api(database_server: DatabaseServer, migrated_template: str) -> str:
    """The name of a database that the others copy: creating keys and a node takes longer than a
    copy."""
    await execute(database_server.dsn, f"CREATE DATABASE api TEMPLATE {migrated_template}")
    await make_callers(database_at(database_server.dsn, "api"))
    return "api"


@pytest_asyncio.fixture(loop_scope="session")
async def api_database(
    database_server: DatabaseServer, template_of_the_api: str
) -> AsyncIterator[str]:
    async with database_server.new_database(template_of_the_api) as dsn:
        yield dsn


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_database(
    database_server: DatabaseServer, template_of_the_api: str
) -> AsyncIterator[str]:
    """A single API for all cases in a module, none of which creates anything."""
    async with database_server.new_database(template_of_the_api) as dsn:
        yield dsn


@pytest.fixture
async def api(
    api_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    monkeypatch.setattr(app, "SHUTDOWN_S", 0.2)  # some cases leave a request open
    async with serving_api(api_database, secret_keys=tmp_path / "secret-keys") as served:
        yield served
