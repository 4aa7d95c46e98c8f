"""Archived and deleted users and projects: what Postgres refuses for them, also in a race, and what
the API and the proxies refuse at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.oidc_rules import Grants
from moorage.common.views.budgets import BudgetSpec
from moorage.common.views.identity import ProjectPatch, ProjectSpec, UserPatch, UserSpec
from moorage.common.views.keys import KeyLimits, KeySpec
from moorage.manager.identity.keys import Owner, digest_of
from moorage.manager.identity.scope import Scope
from moorage.manager.oidc import Person, SignInRefused
from moorage.manager.store import Store

from .tenancy_harness import serve
from .test_tenancy import session_spec

ROOT = Scope.system("key:root", Owner("root", "default"))
ANN = Scope.system("ann", Owner("ann", "vision", isolated=True))
SESSION = (
    "INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, owner, "
    "project, created_by, isolated) VALUES (gen_random_uuid(), 'late', 'batch', 'PENDING', "
    "'default', 10, '{}', '{}', 'ann', 'vision', 'ann', true)"
)
# One statement for each table that names an owner.
ROWS = {
    "sessions": SESSION,
    "endpoints": (
        "INSERT INTO endpoints (id, name, spec, replicas, owner, project, created_by, isolated) "
        "VALUES (gen_random_uuid(), 'late', '{}', 0, 'ann', 'vision', 'ann', true)"
    ),
    "api_keys": (
        "INSERT INTO api_keys (id, name, role, prefix, sha256, owner, project) "
        "VALUES (gen_random_uuid(), 'late', 'member', 'mg-', repeat('a', 64), 'ann', 'vision')"
    ),
    "key limits": "UPDATE api_keys SET requests_per_minute = 5 WHERE name = 'laptop'",
    "memberships": "UPDATE memberships SET role = 'admin'",
    "quotas of a user": (
        "INSERT INTO quotas (scope, name, changed_by) VALUES ('user', 'ann', 't')"
    ),
    "quotas of a project": (
        "INSERT INTO quotas (scope, name, changed_by) VALUES ('project', 'vision', 't')"
    ),
    "budgets of a user": (
        "INSERT INTO budgets (scope, name, unit, period, hard, policy, resets_at, changed_by) "
        "VALUES ('user', 'ann', 'gpu', 'day', 1, 'stop', now(), 't')"
    ),
    "budgets of a project": (
        "INSERT INTO budgets (scope, name, unit, period, hard, policy, resets_at, changed_by) "
        "VALUES ('project', 'vision', 'gpu', 'day', 1, 'stop', now(), 't')"
    ),
    "budgets of a key": (
        "INSERT INTO budgets (scope, name, unit, period, hard, policy, resets_at, changed_by) "
        "VALUES ('key', 'laptop', 'gpu', 'day', 1, 'stop', now(), 't')"
    ),
    "templates": (
        "INSERT INTO templates (project, name, version, body, bases, created_by) "
        "VALUES ('vision', 'late', 1, '{}', '{}', 't')"
    ),
    "secrets": (
        "INSERT INTO secrets (project, name, key_id, sealed, created_by, changed_by) "
        "VALUES ('vision', 'late', 'k', '', 't', 't')"
    ),
    "passwords": ("INSERT INTO user_passwords (user_name, hash) VALUES ('ann', '$argon2id$v=19$')"),
    "limits of a project": (
        "UPDATE projects SET requests_per_minute = 5 WHERE name = 'vision' RETURNING 1"
    ),
    "status of a project": "UPDATE projects SET status = 'active' WHERE name = 'vision'",
    "status of a user": "UPDATE users SET status = 'active' WHERE name = 'ann'",
}
OF_A_USER = ("sessions", "endpoints", "api_keys", "key limits", "memberships", "quotas of a user",
             "budgets of a user", "budgets of a key", "passwords", "status of a user")  # fmt: skip
OF_A_PROJECT = ("sessions", "endpoints", "api_keys", "key limits", "memberships", "templates",
                "quotas of a project", "budgets of a project", "budgets of a key", "secrets",
                "limits of a project", "status of a project")  # fmt: skip


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def make_owners(store: Store) -> str:
    """User ann with a key in project vision. Returns the key's secret."""
    await store.projects.create(ROOT, ProjectSpec(name="vision"))
    await store.users.create(ROOT, UserSpec(name="ann"))
    spec = KeySpec.model_validate({"name": "laptop", "user": "ann", "project": "vision"})
    return (await store.keys.create(ROOT, spec)).secret


async def archive(store: Store, kind: str) -> None:
    if kind == "user":
        await store.users.archive(ROOT, "ann")
    else:
        await store.projects.archive(ROOT, "vision")


@pytest.mark.parametrize(
    ("kind", "rows"), [("user", OF_A_USER), ("project", OF_A_PROJECT)], ids=("user", "project")
)
async def test_postgres_refuses_every_row_for_an_archived_owner(
    store: Store, migrated_database: str, kind: str, rows: Sequence[str]
) -> None:
    await make_owners(store)
    await archive(store, kind)
    name = "ann" if kind == "user" else "vision"
    async with connected(migrated_database) as connection:
        for row in rows:
            with pytest.raises(asyncpg.PostgresError) as refused:
                await connection.execute(ROWS[row])
            assert refused.value.sqlstate == "MG001", row
            assert f"{kind} '{name}' was archived on 20" in str(refused.value), row
            assert f"`moorage {kind}s restore {name}`" in str(refused.value.hint), row

        # What a loop creates for an archived project is refused as well.
        with pytest.raises(asyncpg.PostgresError, match="was archived on"):
            await connection.execute(ROWS["sessions"].replace("true)", "false)"))


# A key creates its owner (api_keys_owner), and the budget of an unknown key concerns nobody.
@pytest.mark.parametrize(
    "row",
    [
        row
        for row, statement in ROWS.items()
        if statement.startswith("INSERT") and row not in ("api_keys", "budgets of a key")
    ],
)
async def test_postgres_refuses_every_row_for_an_unknown_owner(
    migrated_database: str, row: str
) -> None:
    async with connected(migrated_database) as connection:
        with pytest.raises(asyncpg.PostgresError) as refused:
            await connection.execute(ROWS[row])
        assert refused.value.sqlstate in ("MG002", "23503"), row


@pytest.mark.parametrize("kind", ["user", "project"])
async def test_archiving_waits_for_what_is_being_created_and_is_then_refused(
    store: Store, migrated_database: str, kind: str
) -> None:
    await make_owners(store)
    async with connected(migrated_database) as connection:
        async with connection.transaction():
            await connection.execute(SESSION)
            archiving = asyncio.create_task(archive(store, kind))
            await until_blocked(connection)
            assert not archiving.done()

        with pytest.raises(Conflict, match="is in use: session late") as refused:
            await archiving
        assert "--status disabled" in str(refused.value.next_step)


@pytest.mark.parametrize("verb", ["archive", "delete"])
@pytest.mark.parametrize("kind", ["user", "project"])
async def test_creation_waits_for_archiving_or_deletion_and_is_then_refused(
    store: Store, migrated_database: str, kind: str, verb: str
) -> None:
    await make_owners(store)
    await store.keys.revoke(ROOT, "laptop")
    table, name = ("users", "ann") if kind == "user" else ("projects", "vision")
    change = {
        "archive": f"UPDATE {table} SET archived_at = now(), archived_status = status, "
        f"status = 'disabled' WHERE name = '{name}'",
        "delete": f"DELETE FROM {table} WHERE name = '{name}'",
    }[verb]
    async with connected(migrated_database) as one, connected(migrated_database) as other:
        async with one.transaction():
            await one.execute(change)
            creating = asyncio.create_task(other.execute(SESSION))
            await until_blocked(one)

        with pytest.raises(asyncpg.PostgresError) as refused:
            await creating
        assert refused.value.sqlstate == ("MG001" if verb == "archive" else "MG002")


async def until_blocked(connection: asyncpg.Connection) -> None:
    """Wait until a statement waits for this connection's transaction."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY ("
    async with asyncio.timeout(20):
        while not await connection.fetchval(waits + "pg_blocking_pids(pid))"):
            await asyncio.sleep(0.02)


async def test_archived_owner_is_hidden_and_restored_as_it_was(store: Store) -> None:
    secret = await make_owners(store)
    await store.users.update(ROOT, "ann", UserPatch(status="disabled"))
    changed: list[bool] = []
    store.keys.on_change(lambda: changed.append(True))

    view = await store.users.archive(ROOT, "ann")
    assert (view.status, view.archived_by) == ("disabled", "key:root")
    assert changed, "proxies and open requests hear of it"
    assert [user.name for user in (await store.users.page(ROOT)).items] == []
    assert [user.name for user in (await store.users.page(ROOT, archived=True)).items] == ["ann"]
    assert (await store.users.archive(ROOT, "ann")).archived_at == view.archived_at
    with pytest.raises(Conflict, match=r"user 'ann' was archived on .*, and keeps its name"):
        await store.users.create(ROOT, UserSpec(name="ann"))
    restored = await store.users.restore(ROOT, "ann")
    assert (restored.status, restored.archived_at) == ("disabled", None)
    await store.users.update(ROOT, "ann", UserPatch(status="active"))

    await store.projects.archive(ROOT, "vision")
    assert await store.keys.find(digest_of(secret)) is None
    assert await store.keys.grants() == (), "nor at the proxies"
    refusal = await store.keys.refusal(digest_of(secret))
    assert "project 'vision' is archived" in str(refusal)
    assert [p.name for p in (await store.projects.page(ROOT)).items] == ["default"]
    with pytest.raises(Conflict, match="was archived on"):
        await store.projects.create(ROOT, ProjectSpec(name="vision"))
    restored_project = await store.projects.restore(ROOT, "vision")
    assert (restored_project.status, restored_project.members) == ("active", 1)
    assert await store.keys.find(digest_of(secret)) is not None


async def test_each_change_of_an_archived_owner_names_the_way_back(store: Store) -> None:
    await make_owners(store)
    await store.projects.archive(ROOT, "vision")
    restore = "`moorage projects restore vision`"
    key = KeySpec.model_validate({"name": "late", "user": "ann", "project": "vision"})
    budget = BudgetSpec.model_validate({"hard": 5})
    for change in (
        store.keys.create(ROOT, key),
        store.keys.create(ROOT, key.model_copy(update={"create_missing": True})),
        store.keys.update(ROOT, "laptop", KeyLimits(requests_per_minute=1)),
        store.quotas.put(ROOT, "project", "vision", QuotaLimits(sessions=1)),
        store.budgets.put(ROOT, "project", "vision", "gpu", period="day", spec=budget),
        store.projects.update(ROOT, "vision", ProjectPatch(requests_per_minute=5)),
        store.projects.set_member(ROOT, "vision", "ann", "admin"),
        store.sessions.create(ANN, session_spec("late")),
    ):
        with pytest.raises(Conflict, match="project 'vision' was archived on") as refused:
            await change
        assert restore in str(refused.value.next_step)

    # What ends rights is possible.
    await store.projects.remove_member(ROOT, "vision", "ann")
    await store.keys.revoke(ROOT, "laptop")


async def test_owner_in_use_is_not_archived(store: Store) -> None:
    await make_owners(store)
    for number in range(7):
        await store.sessions.create(ANN, session_spec(f"job-{number}"))
    with pytest.raises(Conflict, match=r"session job-4 and 2 more") as refused:
        await store.projects.archive(ROOT, "vision")
    assert "`moorage stop`" in str(refused.value.next_step)
    with pytest.raises(Conflict, match="user 'ann' is in use"):
        await store.users.archive(ROOT, "ann")

    await store.database.fetch("UPDATE sessions SET status = 'TERMINATED'")
    await store.users.archive(ROOT, "ann")
    await store.projects.archive(ROOT, "vision")


async def test_default_project_and_last_administrator_stay(store: Store) -> None:
    await store.keys.create_first("mg-root")
    with pytest.raises(Conflict, match="'default' cannot be archived"):
        await store.projects.archive(ROOT, "default")
    with pytest.raises(Conflict, match=r"keys that name no project|keys in force"):
        await store.projects.delete(ROOT, "default")
    admin = (await store.keys.page(ROOT)).items[0].user
    with pytest.raises(Conflict, match="last administrator"):
        await store.users.archive(ROOT, admin)
    with pytest.raises(NotFound):
        await store.users.archive(ROOT, "nobody")


async def test_only_empty_owners_are_deleted(store: Store) -> None:
    await make_owners(store)
    await store.quotas.put(ROOT, "project", "vision", QuotaLimits(sessions=1))
    for delete, kind, name in (
        (store.projects.delete, "project", "vision"),
        (store.users.delete, "user", "ann"),
    ):
        with pytest.raises(Conflict, match=f"{kind} '{name}' is not empty: .*keys in force") as no:
            await delete(ROOT, name)
        assert f"`moorage {kind}s archive {name}`" in str(no.value.next_step)

    await store.keys.revoke(ROOT, "laptop")
    await store.projects.delete(ROOT, "vision")
    await store.users.delete(ROOT, "ann")
    for table in ("memberships", "quotas", "api_keys WHERE name = 'laptop'"):
        assert await store.database.fetch(f"SELECT FROM {table}") == []
    with pytest.raises(NotFound):
        await store.projects.delete(ROOT, "vision")

    await make_owners(store)  # the names are free again
    session = await store.sessions.create(ANN, session_spec("job"))
    await store.keys.revoke(ROOT, "laptop")
    await store.database.fetch(
        "UPDATE sessions SET status = 'TERMINATED' WHERE id = $1", session.id
    )
    for delete, name in ((store.projects.delete, "vision"), (store.users.delete, "ann")):
        with pytest.raises(Conflict, match="it has sessions"):
            await delete(ROOT, name)


async def test_rules_of_the_provider_skip_archived_owners(store: Store) -> None:
    await store.projects.create(ROOT, ProjectSpec(name="vision"))
    person = Person(
        issuer="https://id.example.org",
        subject="42",
        names=("ann",),
        email="",
        grants=Grants(projects={"vision": "member"}),
    )
    await store.projects.archive(ROOT, "vision")
    assert await store.oidc.identify(person) == "ann"
    assert (await store.users.get(ROOT, "ann")).projects == {}
    await store.projects.restore(ROOT, "vision")
    await store.oidc.identify(person)
    assert (await store.users.get(ROOT, "ann")).projects == {"vision": "member"}
    await store.users.archive(ROOT, "ann")
    with pytest.raises(SignInRefused, match="user 'ann' is archived"):
        await store.oidc.identify(person)


async def test_routes_archive_restore_and_delete(store: Store) -> None:
    async with serve(store) as api:
        for kind in ("projects", "users"):
            created, _ = await api.call("admin", "POST", f"/v1/{kind}", {"name": "late"})
            assert created == 201
            path = f"/v1/{kind}/late"
            for method, at, names in (
                ("POST", f"{path}/archive", False),
                ("POST", f"{path}/restore", True),
            ):
                assert (await api.call("ann", method, at))[0] == 403
                assert (await api.call("admin", method, at))[0] == 200
                assert ("late" in await names_of(api, f"/v1/{kind}")) is names
                assert "late" in await names_of(api, f"/v1/{kind}?archived=true")

            assert (await api.call("admin", "DELETE", path))[0] == 200
            assert (await api.call("admin", "GET", path))[0] == 404

        refused, text = await api.call("admin", "DELETE", "/v1/projects/vision")
        assert (refused, json.loads(text)["code"]) == (409, "conflict")
        _, text = await api.call("admin", "GET", "/v1/audit?name=late")
        actions = [entry["action"] for entry in json.loads(text)["items"]]
        assert {"archive_project", "restore_project", "delete_project"} <= set(actions)


async def names_of(api: Any, path: str) -> list[str]:
    _, text = await api.call("admin", "GET", path)
    return [one["name"] for one in json.loads(text)["items"]]
