"""Secrets of the installation itself, such as the SSH host key: shared by all managers, and
rotated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.common.model.errors import ConfigError
from moorage.manager.secrets import Keyring
from moorage.manager.store import Store
from tests.clocks import StoreClock


@pytest.fixture
async def stores(migrated_database: str, tmp_path: Path) -> AsyncIterator[list[Store]]:
    """The stores of two managers with the same keyring, and the store of a third with a different
    keyring."""
    clock = StoreClock()
    paths = [tmp_path / name for name in ("keys", "keys", "other")]
    made = [Store(migrated_database, clock, keyring=Keyring(path, clock)) for path in paths]
    async with made[0], made[1], made[2]:
        yield made


async def test_managers_that_make_it_at_once_have_the_same(stores: list[Store]) -> None:
    first, second, other = stores
    await first.platform_secrets.get_or_create("warm-up")  # creates the file for the keyring
    found = await asyncio.gather(
        *(
            store.platform_secrets.get_or_create("ssh-host-key")
            for store in (first, second)
            for _ in range(4)
        )
    )
    assert len(set(found)) == 1
    (row,) = await first.database.fetch("SELECT sealed FROM secrets WHERE name = 'ssh-host-key'")
    assert found[0].encode() not in row["sealed"]
    with pytest.raises(ConfigError, match="secrets in Postgres are encrypted with"):
        await other.platform_secrets.get_or_create("ssh-host-key")
    with pytest.raises(ConfigError, match="secrets in Postgres are encrypted with"):
        await other.platform_secrets.get_or_create("another")


async def test_it_stays_the_same_when_the_keys_are_rotated(
    stores: list[Store], tmp_path: Path
) -> None:
    store = stores[0]
    before = await store.platform_secrets.get_or_create("ssh-host-key")
    keyring = Keyring(tmp_path / "keys", StoreClock())
    keyring.add_key()
    assert (await store.secrets.reseal(discard_unreadable=False))[0] == 1
    keyring.keep_newest()
    assert await store.platform_secrets.get_or_create("ssh-host-key") == before
