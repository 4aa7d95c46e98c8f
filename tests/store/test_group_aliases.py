"""Renamed resource groups over the real store and API: what moves to the new name, and what former
names still refer to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from moorage.common.model.errors import Conflict, NotFound, PreconditionFailed, StoreUnavailable
from moorage.common.model.roles import Role
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.keys import KeySpec
from moorage.common.views.metering import UsageSplit
from moorage.common.views.resources import GroupOptions
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.store.scheduling.pending_cache import PendingCache
from tests.clocks import StoreClock

from .conftest import FakeAgent, open_store
from .tenancy_harness import Api, serve

SYSTEM = Scope.system("t")
ANN = Scope.system("ann", Owner("ann", "vision"))


@pytest.fixture
async def store(migrated_database: str) -> AsyncIterator[Store]:
    async with open_store(migrated_database) as made:
        await made.groups.put("fast", GroupOptions(description="of the lab"), actor="root")
        yield made


@pytest.fixture
async def api(store: Store) -> AsyncIterator[Api]:
    async with serve(store) as served:
        yield served


def job(group: str, **more: object) -> SessionSpec:
    return SessionSpec.model_validate({"command": ["x"], "resource_group": group, **more})


async def put_template(api: Api, group: str) -> None:
    body = {"spec": {"command": ["x"], "resource_group": group}}
    status, text = await api.call("ann", "PUT", "/v1/templates/t", body)
    assert status == 200, text


async def settle(store: Store) -> None:
    while await store.group_aliases.settle():
        pass


async def names(store: Store) -> list[str]:
    return [group.name for group in await store.groups.all()]


async def test_what_is_current_moves_along_at_once(api: Api, store: Store) -> None:
    waiting = await store.sessions.create(ANN, job("fast"))
    agent = FakeAgent(store, group="fast")
    await agent.report()
    await api.call("admin", "PUT", "/v1/quotas/group/fast", {"sessions": 3})
    await api.call(
        "admin", "PATCH", "/v1/projects/vision", {"resource_groups": ["default", "fast"]}
    )
    endpoint = {"name": "m", "engine": "custom", "command": ["x"], "probe": {}, "replicas": 0}
    status, text = await api.call(
        "admin", "POST", "/v1/endpoints", endpoint | {"resource_group": "fast"}
    )
    assert status == 201, text
    status, text = await api.call("admin", "PATCH", "/v1/groups/fast", {"name": "quick"})
    view = json.loads(text)
    assert (status, view["name"], view["aliases"], view["version"]) == (200, "quick", ["fast"], 2)
    assert view["options"]["description"] == "of the lab"
    assert (view["agents"], view["pending"]) == (1, 1)
    assert await names(store) == ["default", "quick"]
    moved = await store.sessions.get(ANN, waiting.id)
    assert (moved.resource_group, moved.spec.resource_group, moved.revision) == (
        "quick",
        "quick",
        waiting.revision,
    )
    assert [one.agent_id for one in await store.scheduling.agent_states("quick")] == ["node-1"]
    assert (
        json.loads((await api.call("admin", "GET", "/v1/quotas/group/fast"))[1])["name"] == "quick"
    )
    _, text = await api.call("admin", "GET", "/v1/projects/vision")
    assert json.loads(text)["resource_groups"] == ["default", "quick"]
    _, text = await api.call("admin", "GET", "/v1/endpoints/m")
    assert (json.loads(text)["spec"]["resource_group"], json.loads(text)["revision"]) == (
        "quick",
        1,
    )


async def test_the_former_name_still_stands_for_the_group(api: Api, store: Store) -> None:
    await store.group_aliases.rename("fast", "quick", actor="root")
    status, text = await api.call(
        "ann", "POST", "/v1/sessions", job("fast").model_dump(mode="json")
    )
    made = json.loads(text)
    assert (status, made["resource_group"], made["spec"]["resource_group"]) == (
        201,
        "quick",
        "quick",
    )
    listed = json.loads((await api.call("ann", "GET", "/v1/sessions?resource_group=fast"))[1])[
        "items"
    ]
    assert [one["id"] for one in listed] == [made["id"]]
    assert json.loads((await api.call("ann", "GET", "/v1/groups/fast"))[1])["name"] == "quick"
    status, text = await api.call("admin", "PUT", "/v1/groups/fast", {"hol": "skip"})
    assert (status, json.loads(text)["name"], json.loads(text)["options"]["hol"]) == (
        200,
        "quick",
        "skip",
    )

    # Paths that bypass the API: replicas, retried steps, a manager of the previous release.
    late = await store.sessions.create(ANN, job("fast", name="late"))
    assert (await store.sessions.get(ANN, late.id)).spec.resource_group == "quick"
    status, text = await api.call("admin", "DELETE", "/v1/groups/fast?drain=true")
    assert (status, json.loads(text)["name"]) == (200, "quick")
    with pytest.raises(NotFound, match="retired"):
        await store.sessions.create(ANN, job("fast"))


async def test_an_agent_that_says_the_former_name_stands_in_the_group(store: Store) -> None:
    await FakeAgent(store, group="fast").report()
    await store.group_aliases.rename("fast", "quick", actor="root")
    await FakeAgent(store, group="fast", incarnation="restarted").report()
    await FakeAgent(store, name="node-2", group="fast").report()
    # A manager of the previous release writes what the agent reports.
    await store.database.fetch("UPDATE agents SET resource_group = 'fast' WHERE id = 'node-2'")
    groups = [(await store.agents.get(name)).resource_group for name in ("node-1", "node-2")]
    assert groups == ["quick", "quick"]
    assert await names(store) == ["default", "quick"]


async def test_history_follows_in_batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = [await store.sessions.create(ANN, job("fast")) for _ in range(5)]
    await store.database.fetch("UPDATE sessions SET status = 'CANCELLED', deadline_at = NULL")
    for at, group, used in (("2026-01-01", "fast", 4), ("2026-01-02", "fast", 2)):
        await store.database.fetch(
            "INSERT INTO occupancy_spans (resource_group, seconds, at, samples, slot, capacity, used, "
            f"used_peak) VALUES ('{group}', 86400, '{at}Z', 1, 'cpu', 8, {used}, {used})"
        )

    await store.group_aliases.rename("fast", "quick", actor="root")
    await store.database.fetch(
        "INSERT INTO occupancy_spans (resource_group, seconds, at, samples, slot, capacity, used, used_peak) "
        "VALUES ('quick', 86400, '2026-01-02Z', 3, 'cpu', 8, 6, 6)"
    )
    monkeypatch.setattr("moorage.manager.store.groups.aliases.BATCH", 2)
    assert await store.group_aliases.settle() == 4
    await settle(store)
    assert {(await store.sessions.get(ANN, one.id)).resource_group for one in ended} == {"quick"}
    spans = await store.database.fetch(
        "SELECT at::date::text, samples, used, used_peak FROM occupancy_spans ORDER BY 1"
    )
    assert [tuple(span.values()) for span in spans] == [
        ("2026-01-01", 1, 4.0, 4),
        ("2026-01-02", 4, 5.0, 6),
    ]
    assert await store.group_aliases.settle() == 0


async def test_a_session_that_was_created_at_the_same_moment_follows(store: Store) -> None:
    """Its statement saw the group's earlier state."""
    await store.group_aliases.rename("fast", "quick", actor="root")
    made = await store.sessions.create(ANN, job("quick"))
    await store.database.fetch("UPDATE sessions SET resource_group = 'fast'")
    await settle(store)
    assert (await store.sessions.get(ANN, made.id)).resource_group == "quick"


async def test_an_agent_that_came_at_the_same_moment_follows(
    store: Store, migrated_database: str
) -> None:
    await FakeAgent(store).report()
    other = await asyncpg.connect(migrated_database)
    async with other.transaction():
        await other.execute("UPDATE agents SET resource_group = 'fast'")
        await store.group_aliases.rename("fast", "quick", actor="root")

    await other.close()
    assert (await store.agents.get("node-1")).resource_group == "fast", "the rename did not see it"
    await settle(store)
    assert [one.agent_id for one in await store.scheduling.agent_states("quick")] == ["node-1"]


async def test_what_a_manager_of_the_release_before_writes_is_of_the_group(
    api: Api, store: Store
) -> None:
    """The previous release does not know about aliases, so it writes the name from the request."""
    await store.group_aliases.rename("fast", "quick", actor="root")
    fields = {"name": "m", "engine": "custom", "command": ["x"], "probe": {}, "replicas": 1}
    spec = EndpointSpec.model_validate(
        fields | {"resource_group": "fast", "resource_groups": ["fast", "default"]}
    )
    made, _ = await store.endpoints.create_once(ANN, spec, [], {}, idempotency_key=None)
    await store.keys.create(
        SYSTEM,
        KeySpec(
            name="ci",
            user="ann",
            project="vision",
            role=Role.MEMBER,
            resource_groups=["fast", "default"],
        ),
    )
    await store.database.fetch(
        "UPDATE projects SET resource_groups = '{fast,default}' WHERE name = 'vision'"
    )
    await store.database.fetch(
        "INSERT INTO quotas (scope, name, sessions, changed_by) VALUES ('group', 'fast', 1, 'x')"
    )

    for said in (
        "SELECT spec ->> 'resource_group' FROM endpoints",
        "SELECT serving -> 'resource_groups' ->> 0 FROM endpoints",
        "SELECT spec ->> 'resource_group' FROM endpoint_revisions",
        "SELECT resource_groups[1] FROM api_keys WHERE name = 'ci'",
        "SELECT resource_groups[1] FROM projects WHERE name = 'vision'",
        "SELECT name FROM quotas",
    ):
        assert {row[0] for row in await store.database.fetch(said)} == {"quick"}, said

    assert (await api.call("admin", "DELETE", "/v1/group-aliases/fast"))[0] == 200
    view = json.loads((await api.call("admin", "GET", "/v1/endpoints/m"))[1])
    assert (view["spec"]["resource_group"], view["revision"]) == ("quick", 1)
    replica = spec.session("m-1", view["spec"]["resource_group"])
    made_now = await store.sessions.create(
        ANN, replica, endpoint_id=made.snapshot.endpoint_id, endpoint_revision=1
    )
    assert made_now.resource_group == "quick"


async def test_a_group_with_a_former_name_again_keeps_its_prices_of_today(store: Store) -> None:
    for price, since in ((1, "-1 hour"), (2, "0 hours"), (3, "9 hours")):
        await store.database.fetch(
            "INSERT INTO prices (unit, device, resource_group, since, price, changed_by) "
            f"VALUES ('gpu', '', 'fast', date_trunc('hour', now(), 'UTC') + interval '{since}', {price}, 'x')"
        )

    await store.group_aliases.rename("fast", "quick", actor="root")
    await store.database.fetch(
        "UPDATE prices SET price = price * 10 WHERE resource_group = 'quick'"
    )
    await store.group_aliases.rename("quick", "fast", actor="root")
    rows = await store.database.fetch(
        "SELECT price FROM prices WHERE resource_group = 'fast' ORDER BY since"
    )
    assert [row["price"] for row in rows] == [1, 20, 30], "of hours that have passed, prices stay"


async def test_of_two_administrators_who_rename_at_once_one_is_told(store: Store) -> None:
    rename = store.group_aliases.rename
    answers = await asyncio.gather(
        rename("fast", "quick", actor="a"),
        rename("fast", "swift", actor="b"),
        return_exceptions=True,
    )
    [error] = [one for one in answers if isinstance(one, BaseException)]
    [view] = [one for one in answers if not isinstance(one, BaseException)]
    assert isinstance(error, Conflict)
    assert f"'fast' is now {view.name!r}" in str(error)
    assert await names(store) == sorted(["default", view.name])
    with pytest.raises(PreconditionFailed, match="has version 2"):
        await rename(view.name, "other", actor="a", if_match=frozenset({1}))


async def test_a_name_that_is_taken_is_refused(api: Api, store: Store) -> None:
    await store.group_aliases.rename("fast", "quick", actor="root")
    for name, to, message in (
        ("quick", "default", "there is a resource group 'default'"),
        ("default", "fast", "'fast' is an alias of resource group 'quick'"),
        ("quick", "quick", "already named 'quick'"),
    ):
        status, text = await api.call("admin", "PATCH", f"/v1/groups/{name}", {"name": to})
        assert (status, message in text) == (409, True), text

    status, text = await api.call("admin", "POST", "/v1/groups", {"name": "fast"})
    assert (status, "is an alias of resource group 'quick'" in text) == (409, True)
    assert (await api.call("admin", "PATCH", "/v1/groups/quick", {"name": "a b"}))[0] == 422
    assert (await api.call("admin", "PATCH", "/v1/groups/nowhere", {"name": "x"}))[0] == 404
    assert (await api.call("boss", "PATCH", "/v1/groups/quick", {"name": "x"}))[0] == 403


async def test_a_group_gets_a_former_name_back(store: Store) -> None:
    made = await store.sessions.create(ANN, job("fast"))
    for name, to in (("fast", "quick"), ("quick", "swift"), ("swift", "fast")):
        view = await store.group_aliases.rename(name, to, actor="root")
    assert (view.name, view.aliases, view.version) == ("fast", ["quick", "swift"], 4)
    assert (await store.sessions.get(ANN, made.id)).resource_group == "fast"
    made = await store.sessions.create(ANN, job("quick", name="two"))
    assert (await store.sessions.get(ANN, made.id)).resource_group == "fast"
    rows = await store.database.fetch("SELECT count(DISTINCT renamed_to) AS n FROM resource_groups")
    assert rows[0]["n"] == 1, "an alias points at the group itself"


async def test_an_alias_is_freed_once_nothing_says_it(api: Api, store: Store) -> None:
    agent = FakeAgent(store, group="fast")
    await agent.report()
    await put_template(api, "fast")
    await store.group_aliases.rename("fast", "quick", actor="root")
    status, text = await api.call("admin", "DELETE", "/v1/group-aliases/fast")
    assert (status, "in use by 1 agents, 1 templates" in text) == (409, True), text
    await FakeAgent(store, group="quick", incarnation="configured").report()
    await put_template(api, "quick")
    status, text = await api.call("admin", "DELETE", "/v1/group-aliases/fast")
    assert (status, json.loads(text)["aliases"]) == (200, []), text
    assert (await api.call("admin", "DELETE", "/v1/group-aliases/quick"))[0] == 404
    assert (await api.call("admin", "POST", "/v1/groups", {"name": "fast"}))[0] == 201
    _, text = await api.call("admin", "GET", "/v1/audit")
    assert {"rename_group", "release_group_alias"} - {
        one["action"] for one in json.loads(text)["items"]
    } == {"rename_group"}


async def test_a_rename_gives_up_on_rows_that_stay_locked(
    store: Store, migrated_database: str
) -> None:
    await store.sessions.create(ANN, job("fast"))
    other = await asyncpg.connect(migrated_database)
    async with other.transaction():
        await other.execute("SELECT FROM sessions FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="was not renamed"):
            await store.group_aliases.rename("fast", "quick", actor="root")

    await other.close()
    assert await names(store) == ["default", "fast"]
    assert (await store.group_aliases.rename("fast", "quick", actor="root")).pending == 1


async def test_a_rename_keeps_every_column_of_the_group(store: Store) -> None:
    columns = {"name", "version", "changed_at", "changed_by", "renamed_to"}
    await store.database.fetch(
        'UPDATE resource_groups SET cursors = \'{"x86_64": "n"}\', losses_held_since = now(), '
        "retired_at = now(), "
        "created_at = now() - interval '1 day' WHERE name = 'fast'"
    )
    [before] = await store.database.fetch("SELECT * FROM resource_groups WHERE name = 'fast'")
    await store.group_aliases.rename("fast", "quick", actor="root")
    [after] = await store.database.fetch("SELECT * FROM resource_groups WHERE name = 'quick'")
    kept = {name: value for name, value in before.items() if name not in columns}
    assert kept.items() <= dict(after).items()
    assert None not in kept.values()


async def test_other_managers_learn_of_a_rename(store: Store, migrated_database: str) -> None:
    async with open_store(migrated_database) as other:
        assert await other.group_aliases.names() == {}
        pending = PendingCache(other.database, StoreClock(), other.unreadable, other.notifier)
        waiting = await other.sessions.create(ANN, job("fast"))
        assert [one.session_id for one in (await pending.of("fast"))[0]] == [waiting.id]
        await store.group_aliases.rename("fast", "quick", actor="root")
        async with asyncio.timeout(30):  # by its clock, its cache never expires
            while await other.group_aliases.current("fast") != "quick":
                await asyncio.sleep(0.01)

        assert [one.session_id for one in (await pending.of("quick"))[0]] == [waiting.id]
        assert (await pending.of("fast"))[0] == ()


async def test_history_of_a_group_is_found_by_every_name(store: Store) -> None:
    """Usage records never change: their group is resolved when they are read."""
    await store.database.fetch(
        "INSERT INTO usage_records (source, epoch, sequence, began_at, ended_at, project, username, key_id, "
        "model, requests, tokens_in, tokens_out, tokens_cached, session_id, endpoint, resource_group) VALUES "
        "('p', 'e', 1, now(), now(), 'vision', 'ann', '', 'm', 1, 2, 3, 0, '', '', 'fast')"
    )
    await store.database.fetch(
        "INSERT INTO prices (unit, device, resource_group, since, price, changed_by) "
        "VALUES ('gpu', '', 'fast', date_trunc('hour', now(), 'UTC'), 7, 'root')"
    )
    await store.group_aliases.rename("fast", "quick", actor="root")
    prices = await store.database.fetch("SELECT resource_group, price FROM prices ORDER BY 1")
    assert [tuple(row.values()) for row in prices] == [("fast", 7), ("quick", 7)]
    rows = await store.database.fetch("SELECT resource_group FROM usage_records")
    assert [row["resource_group"] for row in rows] == ["fast"]
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    split = UsageSplit.model_validate({"by": ["resource_group"]})
    page = await store.usage_records.page(
        SYSTEM, hour - timedelta(hours=1), hour + timedelta(hours=1), split
    )
    assert [one.resource_group for one in page.items] == ["quick"]
    for name in ("fast", "quick"):
        [row] = await store.database.fetch("SELECT group_names($1) AS names", name)
        assert sorted(row["names"]) == ["fast", "quick"]
