"""Proxy ids on a real manager: two hosts with one name are two proxies, and a copied id is
refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from proxy_harness import TOKEN, proxy, until
from test_usage_wire import eventually

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.manager import Manager
from moorage.proxy.control import feed
from moorage.sdk import Client

pytestmark = pytest.mark.timeout(120)


@pytest_asyncio.fixture
async def running(
    migrated_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Manager]:
    monkeypatch.setattr(feed, "REFUSED_S", 1.0)
    monkeypatch.setattr(feed, "REPORT_AGAIN_S", 0.5)
    settings = ManagerSettings(
        dsn=migrated_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0"
    )
    async with Manager(settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path) as entered:
        yield entered


async def proxies(running: Manager) -> list[str]:
    assert running.first_key is not None
    async with Client(f"http://{running.api_address}", running.first_key) as client:
        return [name for view in await client.managers.list() for name in view.proxies]


async def test_proxies_of_one_host_name_and_port_are_two(running: Manager, tmp_path: Path) -> None:
    """Like containers from one image: the state directories differ."""
    async with (
        proxy(running.link_address, tmp_path / "a", id=None) as first,
        proxy(running.link_address, tmp_path / "b", id=None) as second,
    ):

        async def both() -> bool:
            return await proxies(running) == sorted((first.id, second.id))

        assert first.id != second.id
        await eventually(both)


async def test_second_process_with_an_id_is_refused_while_the_first_is_there(
    running: Manager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = ""

    async def is_refused() -> bool:
        nonlocal logged
        logged += "".join(capsys.readouterr())
        return (
            "the manager refuses the reports of this proxy" in logged
            and "proxy refused" in logged
            and "give this one a different proxy.id" in logged
        )

    async with AsyncExitStack() as copies:
        async with proxy(running.link_address, tmp_path / "original"):
            await eventually(lambda: is_held(running))
            held = await reporting(running)
            copy = await copies.enter_async_context(proxy(running.link_address, tmp_path / "copy"))
            await eventually(is_refused)
            await until(lambda: copy.ready)  # it serves from the manager's routes
            assert await reporting(running) == held

        async def has_taken_over() -> bool:
            return await reporting(running) not in ([], held)

        await eventually(has_taken_over)


async def is_held(running: Manager) -> bool:
    return bool(await reporting(running))


async def reporting(running: Manager) -> list[str]:
    """The processes that have a certain name."""
    connection = await asyncpg.connect(running.dsn)
    try:
        rows = await connection.fetch(
            "SELECT incarnation FROM proxy_reports WHERE manager IS NOT NULL"
        )
    finally:
        await connection.close()
    return [row["incarnation"] for row in rows]
