"""Stored secrets: encrypted rows, orders that contain the values, deletion and rotation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.common.model.errors import ConfigError, Conflict, InvalidInput, NotFound
from moorage.common.model.ids import AgentId
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.secrets import Keyring
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import FakeAgent, open_store, schedule, stop

pytestmark = pytest.mark.usefixtures("owners")

VISION = Owner("ann", "vision")


def scope(project: str, user: str = "ann") -> Scope:
    return Scope.system(f"key:{user}", Owner(user, project))


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "secrets-keys", StoreClock())


@pytest.fixture
async def secret_store(migrated_database: str, keyring: Keyring) -> AsyncIterator[Store]:
    async with open_store(migrated_database, keyring=keyring) as store:
        yield store


def spec(**fields: object) -> SessionSpec:
    resources = {"cpu": 1, "mem": "64MiB", "cuda.device": 1}
    return SessionSpec.model_validate({"command": ["x"], "resources": resources} | fields)


async def ordered_env(store: Store) -> dict[str, str]:
    [kernel] = await store.orders.of(AgentId("node-1"))
    return kernel.env


async def test_a_secret_reaches_the_kernel_and_nothing_else(secret_store: Store) -> None:
    store = secret_store
    await FakeAgent(store, "node-1").report()
    await store.secrets.put(scope("vision", "ann"), "hf", "hunter2")
    await store.secrets.put(scope("other", "bob"), "hf", "wrong project")
    made = await store.sessions.create(
        Scope.system("key:ann", VISION), spec(env={"SEED": "1"}, secret_env={"HF_TOKEN": "hf"})
    )
    assert await schedule(store) == 1
    assert await ordered_env(store) == {"SEED": "1", "HF_TOKEN": "hunter2"}
    assert "hunter2" not in (await store.sessions.get(Scope.system(), made.id)).model_dump_json()
    for table in ("secrets", "sessions", "session_history"):
        rows = await store.database.fetch(f"SELECT t::text AS row FROM {table} t")
        assert not any("hunter2" in row["row"] or b"hunter2".hex() in row["row"] for row in rows)


async def test_a_new_value_reaches_kernels_that_start_later(secret_store: Store) -> None:
    store = secret_store
    first = await store.secrets.put(scope("vision", "ann"), "hf", "old")
    second = await store.secrets.put(scope("vision", "ben"), "hf", "new")
    assert (first.version, second.version) == (1, 2)
    assert (second.created_by, second.changed_by) == ("key:ann", "key:ben")
    await FakeAgent(store, "node-1").report()
    await store.sessions.create(Scope.system("key:ann", VISION), spec(secret_env={"T": "hf"}))
    await schedule(store)
    assert await ordered_env(store) == {"T": "new"}


async def test_a_deleted_secret_stays_for_the_sessions_that_refer_to_it(
    secret_store: Store,
) -> None:
    store = secret_store
    await FakeAgent(store, "node-1").report()
    await store.secrets.put(scope("vision", "ann"), "hf", "hunter2")
    made = await store.sessions.create(
        Scope.system("key:ann", VISION), spec(secret_env={"T": "hf"})
    )
    await store.secrets.delete(scope("vision"), "hf")
    assert await store.secrets.all(scope("vision")) == []
    with pytest.raises(InvalidInput, match="'vision' has no secret 'hf'"):
        await store.secrets.check_exist(scope("vision"), {"hf"})
    with pytest.raises(NotFound, match="no secret 'hf'"):
        await store.secrets.delete(scope("vision"), "hf")

    await store.database.fetch("UPDATE secrets SET deleted_at = deleted_at - interval '2 hours'")
    assert await store.secrets.delete_unused() == 0
    await schedule(store)
    assert await ordered_env(store) == {"T": "hunter2"}
    await store.database.fetch("UPDATE sessions SET status = 'CANCELLED'")
    assert await store.secrets.delete_unused() == 1
    assert (await store.sessions.get(Scope.system(), made.id)).id == made.id


async def test_an_endpoint_keeps_a_deleted_secret(secret_store: Store) -> None:
    store = secret_store
    await store.secrets.put(scope("vision", "ann"), "hf", "hunter2")
    await store.secrets.delete(scope("vision"), "hf")
    await store.database.fetch("UPDATE secrets SET deleted_at = deleted_at - interval '2 hours'")
    await store.database.fetch(
        "INSERT INTO endpoints (id, name, spec, replicas, created_by, owner, project) VALUES"
        " (gen_random_uuid(), 'm', '{\"secret_env\": {\"T\": \"hf\"}}', 1, 'a', 'ann', 'vision')"
    )
    assert await store.secrets.delete_unused() == 0
    await store.database.fetch("UPDATE endpoints SET deleted_at = now()")
    assert await store.secrets.delete_unused() == 1


async def test_a_manager_without_the_key_neither_writes_nor_starts(
    secret_store: Store, keyring: Keyring, migrated_database: str, tmp_path: Path
) -> None:
    await secret_store.secrets.put(scope("vision", "ann"), "hf", "hunter2")
    other = Keyring(tmp_path / "other-keys", StoreClock())
    async with open_store(migrated_database, keyring=other) as store:
        with pytest.raises(ConfigError, match=keyring.ids()[0]):
            await store.secrets.check_keys()
        with pytest.raises(Conflict, match="does not have the key"):
            await store.secrets.put(scope("vision", "ann"), "new", "x")

        assert [view.name for view in await store.secrets.all(scope("vision"))] == ["hf"]
        # Its kernels wait rather than start without the variable.
        await FakeAgent(store, "node-1").report()
        await store.sessions.create(Scope.system("key:ann", VISION), spec(secret_env={"T": "hf"}))
        await schedule(store)
        assert await store.orders.of(AgentId("node-1")) == ()
        other.path.write_text(keyring.path.read_text())
        assert await ordered_env(store) == {"T": "hunter2"}


async def test_rotation_encrypts_everything_with_the_newest_key(
    secret_store: Store, keyring: Keyring
) -> None:
    store = secret_store
    for name in ("a", "b"):
        await store.secrets.put(scope("vision", "ann"), name, f"value of {name}")

    [old] = keyring.ids()
    assert await store.secrets.use_newest_key()
    newest = keyring.add_key()
    assert not await store.secrets.use_newest_key()
    assert await store.secrets.reseal(discard_unreadable=False) == (2, [])
    keyring.keep_newest()
    assert keyring.ids() == [newest] != [old]
    await store.secrets.check_keys()
    await FakeAgent(store, "node-1").report()
    made = await store.sessions.create(Scope.system("key:ann", VISION), spec(secret_env={"T": "b"}))
    await schedule(store)
    assert await ordered_env(store) == {"T": "value of b"}
    await stop(store, made.id, actor="test")


async def test_secrets_whose_key_is_lost_are_deleted_only_on_request(
    secret_store: Store, keyring: Keyring
) -> None:
    await secret_store.secrets.put(scope("vision", "ann"), "hf", "hunter2")
    keyring.add_key()
    keyring.keep_newest()
    with pytest.raises(ConfigError, match="discard-unreadable"):
        await secret_store.secrets.reseal(discard_unreadable=False)
    assert await secret_store.secrets.reseal(discard_unreadable=True) == (0, ["vision/hf"])
    assert await secret_store.secrets.all(scope("vision")) == []
