"""Several managers with one database: each of them shows all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import manager_harness as h
import pytest_asyncio
from manager_harness import manager as manager
from test_usage_wire import eventually, scrape

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL
from moorage.common.views.managers import ManagerView
from moorage.manager import Manager
from moorage.sdk import Client


@pytest_asyncio.fixture
async def second(
    manager: Manager, migrated_database: str, tmp_path: Path
) -> AsyncIterator[Manager]:
    settings = ManagerSettings(
        dsn=migrated_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0"
    )
    home = tmp_path / "second"
    home.mkdir()

    async with Manager(
        settings, clock=SystemClock(), link_token=h.TOKEN, home=home, link_tls="off"
    ) as running:
        yield running


async def ask(key: str, manager: Manager) -> list[ManagerView]:
    async with Client(f"http://{manager.api_address}", key) as client:
        return await client.managers.list()


async def test_each_manager_shows_all(manager: Manager, second: Manager) -> None:
    assert manager.first_key is not None
    by_first = await ask(manager.first_key, manager)
    by_second = await ask(manager.first_key, second)
    assert [view.link for view in by_first] == [manager.link_address, second.link_address]
    assert [view.leader for view in by_first] == [True, False]
    assert [view.term is not None for view in by_first] == [True, False]
    assert [view.answers for view in by_first] == [True, False]
    assert [view.answers for view in by_second] == [False, True]
    assert [view.model_copy(update={"answers": not view.answers}) for view in by_second] == by_first


async def test_metrics_tell_who_leads_and_how_many_managers_there_are(
    manager: Manager, second: Manager
) -> None:
    assert manager.first_key is not None

    async def both_know() -> bool:
        found = [await scrape(one.api_address) for one in (manager, second)]
        return all(metrics["moorage_managers"] == 2 for metrics in found)

    await eventually(both_know)
    term = (await ask(manager.first_key, second))[0].term
    assert (await scrape(manager.api_address))["moorage_manager_terms_total"] == term
    assert (await scrape(second.api_address))["moorage_manager_terms_total"] == 0
    await manager.__aexit__(None, None, None)

    async def follower_leads() -> bool:
        metrics = await scrape(second.api_address)
        return metrics["moorage_manager_terms_total"] == metrics["moorage_managers"] == 1

    await eventually(follower_leads)
    (left,) = await ask(manager.first_key, second)
    assert (left.link, left.leader) == (second.link_address, True)


async def test_a_watcher_sees_what_was_changed_at_another_manager(
    manager: Manager, second: Manager
) -> None:
    """Events belong to the database, not to the manager that made the change."""
    key = manager.first_key
    async with (
        Client(f"http://{manager.api_address}", key) as client,
        Client(f"http://{second.api_address}", key) as other,
        asyncio.timeout(30),
    ):
        stream = other.events.follow("session")
        watching = asyncio.ensure_future(anext(stream))
        names = []

        # until the watcher is connected
        while not (await asyncio.wait([watching], timeout=0.5))[0]:
            names.append(f"job-{len(names)}")
            await client.sessions.create(
                SessionSpec(name=names[-1], command=["true"], resources={"cpu": 1})
            )

        seen = json.loads((await watching).data)
        assert seen["name"] in names
        assert seen["status"] == "PENDING"
        await client.sessions.stop(seen["name"])

        async for event in stream:
            data = json.loads(event.data)
            if data["name"] == seen["name"] and data["status"] in TERMINAL:
                break

        await stream.aclose()
