"""A restored database and the live one: no manager starts on one while a manager serves the
other."""

from __future__ import annotations

from pathlib import Path

import manager_harness as h
import pytest
from manager_harness import manager as manager
from tests.databases import execute, new_database

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.common.model.errors import ConfigError, StartupError
from moorage.manager import Manager
from moorage.manager.postgres import backup
from moorage.manager.postgres.clients import client_programs
from moorage.manager.store.database.state import database_state
from moorage.manager.store.platform.restored import prepare_restored
from moorage.manager.store.schema.migrate import UNPREPARED


def second(dsn: str, home: Path, **settings: str) -> Manager:
    home.mkdir(exist_ok=True)
    chosen = ManagerSettings.model_validate(
        {"dsn": dsn, "listen": "127.0.0.1:0", "link_listen": "127.0.0.1:0"} | settings
    )
    # On loopback they contact each other without TLS, and have no state directory in common.
    link_tls = "off" if chosen.link_address is None else "on"
    return Manager(chosen, clock=SystemClock(), link_token=h.TOKEN, home=home, link_tls=link_tls)  # type: ignore[arg-type]


async def test_a_restored_copy_waits_for_the_end_of_the_live_one(
    manager: Manager, postgres_dsn: str, tmp_path: Path
) -> None:
    file = tmp_path / "moorage.dump"
    programs = await client_programs(manager.dsn, (await database_state(manager.dsn)).major, None)
    await backup.dump(programs, file)

    async with new_database(postgres_dsn) as dsn:
        programs = await client_programs(dsn, (await database_state(dsn)).major, None)
        await backup.load(programs, await backup.inspect(programs, file), unprepared=UNPREPARED)
        await prepare_restored(dsn)

        with pytest.raises(
            StartupError, match=f"{manager.link_address} runs on another copy"
        ) as refused:
            async with second(dsn, tmp_path / "second"):
                pass

        assert "stop every manager" in refused.value.next_step
        await manager.__aexit__(None, None, None)
        async with second(dsn, tmp_path / "second") as running:
            assert running.link_address


async def test_neither_the_same_database_nor_a_silent_manager_is_an_obstacle(
    manager: Manager, migrated_database: str, tmp_path: Path
) -> None:
    async with second(migrated_database, tmp_path / "second"):
        pass
    await execute(migrated_database, "UPDATE managers SET link = '127.0.0.1:1'")
    async with second(migrated_database, tmp_path / "second"):
        pass


async def test_another_secret_of_the_ca_is_refused(migrated_database: str, tmp_path: Path) -> None:
    tls = {"link_listen": "0.0.0.0:0", "link_address": "127.0.0.1:1"}
    async with second(migrated_database, tmp_path / "first", ca_secret="one", **tls):
        with pytest.raises(ConfigError, match="ca_secret") as refused:
            async with second(migrated_database, tmp_path / "second", ca_secret="two", **tls):
                pass
    assert "same secret in every manager" in refused.value.next_step
