"""Facts that `moorage doctor --cluster` reads, and the test of a backup by restoring it."""

from __future__ import annotations

from pathlib import Path

import pytest

import moorage
from moorage.common.model.errors import InvalidInput, StoreUnavailable
from moorage.manager.loops.presence import OwnFacts, Presence
from moorage.manager.postgres import backup
from moorage.manager.postgres.clients import client_programs
from moorage.manager.store import Store
from moorage.manager.store.database.state import database_state
from moorage.manager.store.platform.backups import cluster_facts, record_backup, record_test
from moorage.manager.store.schema.migrate import newest_revision
from moorage.server.backup_test import restore_temporarily
from tests.clocks import StoreClock

from .conftest import FakeAgent
from .test_restored import add


async def test_facts_of_a_database(store: Store) -> None:
    own = OwnFacts(
        dialout=lambda: ["edge-1:8802"],
        asks=lambda: {"edge-1": ["192.0.2.1"]},
        plain_senders=lambda: {"keys": ["ci"]},
    )
    presence = Presence(store, StoreClock(), lambda: "198.51.100.1:8701", facts=own)
    presence.proxy_connected("edge-1")
    await presence.run_once()
    await FakeAgent(store).report()
    facts = await cluster_facts(store.database.dsn)
    (manager,), (agent,) = facts["managers"], facts["agents"]
    assert abs(manager.pop("clock_ahead_s")) < 1
    assert manager.pop("dialout") == ["edge-1:8802"]
    assert manager.pop("asks") == {"edge-1": ["192.0.2.1"]}
    assert manager.pop("plain_senders") == {"keys": ["ci"]}
    assert agent["undialed"] == {}
    assert manager == {
        "link": "198.51.100.1:8701",
        "version": moorage.__version__,
        "proxies": ["edge-1"],
    }
    assert (agent["id"], agent["connected"]) == ("node-1", True)
    assert (facts["revision"], facts["standbys"], facts["synchronous"]) == (
        newest_revision(),
        0,
        False,
    )
    assert (facts["backup_at"], facts["tested_at"], facts["certificates"]) == (None, None, [])


async def test_a_backup_is_tested_by_its_restore(store: Store, tmp_path: Path) -> None:
    dsn = store.database.dsn
    file = tmp_path / "moorage.dump"
    await FakeAgent(store).report()
    await add(store, "kept")
    programs = await client_programs(dsn, (await database_state(dsn)).major, None)
    size = await backup.dump(programs, file)
    assert not await record_test(dsn, file, size), "this database has taken no such backup"
    await record_backup(dsn, file, size)
    assert (await cluster_facts(dsn))["tested_at"] is None
    found = await restore_temporarily(file, None, StoreClock())
    assert (found.sessions, found.size, found.drifts) == (1, size, [])
    assert await record_test(dsn, file, found.size)
    facts = await cluster_facts(dsn)
    assert facts["now"] - 60 < facts["backup_at"] < facts["tested_at"] <= facts["now"]


async def test_a_file_that_is_no_backup_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "moorage.dump"
    file.write_text("nothing")
    with pytest.raises(InvalidInput, match="cannot be read as a backup"):
        await restore_temporarily(file, None, StoreClock())


async def test_a_database_without_a_schema_is_named(empty_database: str) -> None:
    with pytest.raises(StoreUnavailable, match="no schema"):
        await cluster_facts(empty_database)
