"""Resource groups over the real store and API: creation, editing by one client at a time,
retirement and restriction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from moorage.common.model.errors import NotFound
from moorage.common.model.spec import SessionSpec
from moorage.common.views.resources import GroupOptions
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FakeAgent
from .tenancy_harness import Api, serve

ANN = Scope.system("ann", Owner("ann", "vision"))
BOB = Scope.system("bob", Owner("bob", "speech"))


@pytest.fixture
async def api(store: Store) -> AsyncIterator[Api]:
    async with serve(store) as served:
        yield served


def job(group: str) -> SessionSpec:
    return SessionSpec.model_validate({"command": ["x"], "resource_group": group})


async def put(
    api: Api, name: str, tag: str | None = None, method: str = "PUT", **options: Any
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {api.keys['admin']}"} | ({"If-Match": tag} if tag else {})
    body = options if method == "PUT" else None
    async with api.http.request(method, f"/v1/groups/{name}", json=body, headers=headers) as answer:
        return answer.status, (answer.headers.get("ETag"), await answer.json())


async def test_a_group_is_created_once(api: Api) -> None:
    body = {"name": "fast", "options": {"strategy": "drf", "description": "for training"}}
    assert (await api.call("admin", "POST", "/v1/groups", body))[0] == 201
    status, text = await api.call("admin", "POST", "/v1/groups", body)
    assert (status, "there is a resource group" in text) == (409, True)
    status, text = await api.call(
        "admin", "POST", "/v1/groups", {"name": "x", "options": {"hol": "never"}}
    )
    assert status == 422
    assert (await api.call("boss", "POST", "/v1/groups", body))[0] == 403


async def test_of_two_administrators_who_edit_at_once_one_is_told(api: Api) -> None:
    _, (tag, _) = await put(api, "fast")
    answers = await asyncio.gather(
        put(api, "fast", tag, strategy="lifo"), put(api, "fast", tag, strategy="drf")
    )
    assert sorted(status for status, _ in answers) == [200, 412]
    status, (_, problem) = await put(api, "fast", tag, strategy="fifo")
    assert (status, problem["code"]) == (412, "precondition-failed")
    assert (await put(api, "unknown", '"1"'))[0] == 412
    assert (await put(api, "fast", "nonsense"))[0] == 422
    assert (await put(api, "fast", tag, method="DELETE"))[0] == 412


async def test_a_group_in_use_is_drained_not_retired(api: Api, store: Store) -> None:
    await store.groups.put("fast", GroupOptions(), actor="root")
    made = await store.sessions.create(ANN, job("fast"))
    status, text = await api.call("admin", "DELETE", "/v1/groups/fast")
    assert (status, "1 sessions" in text) == (409, True)
    status, text = await api.call("admin", "DELETE", "/v1/groups/fast?drain=true")
    assert (status, json.loads(text)["retired_at"] is not None) == (200, True)
    with pytest.raises(NotFound, match="retired"):
        await store.sessions.create(ANN, job("fast"))

    assert (await store.sessions.get(ANN, made.id)).status == "PENDING"
    assert (await api.call("admin", "PUT", "/v1/groups/fast", {}))[0] == 409
    assert (await api.call("admin", "POST", "/v1/groups", {"name": "fast"}))[0] == 201
    assert (await store.sessions.create(ANN, job("fast"))).resource_group == "fast"


async def test_a_group_is_for_its_projects_and_users(api: Api, store: Store) -> None:
    await store.groups.put("lab", GroupOptions(projects=["vision"], users=["boss"]), actor="root")
    assert (await store.sessions.create(ANN, job("lab"))).resource_group == "lab"
    with pytest.raises(NotFound, match="you may not use it"):
        await store.sessions.create(BOB, job("lab"))

    endpoint = {"name": "m", "engine": "custom", "command": ["x"], "probe": {}, "replicas": 0}
    for caller, sees in (("ann", True), ("bob", False), ("boss", True), ("auditor", True)):
        _, text = await api.call(caller, "GET", "/v1/groups")
        assert ("lab" in [one["name"] for one in json.loads(text)["items"]]) is sees, caller
        assert (await api.call(caller, "GET", "/v1/groups/lab"))[0] == (200 if sees else 404), (
            caller
        )

        if caller in ("bob", "boss"):
            body = endpoint | {"resource_group": "lab", "name": f"m-{caller}"}
            status, text = await api.call(caller, "POST", "/v1/endpoints", body)
            assert status == (201 if sees else 404), text

    _, text = await api.call("boss", "GET", "/v1/groups/lab")
    assert json.loads(text)["options"]["projects"] == [], "of other projects, it shows no name"


async def test_the_managers_record_of_an_agents_group_wins(api: Api, store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.groups.put("fast", GroupOptions(), actor="root")
    status, _ = await api.call(
        "admin", "PUT", "/v1/agents/node-1/group", {"resource_group": "nowhere"}
    )
    assert status == 404
    status, text = await api.call(
        "admin", "PUT", "/v1/agents/node-1/group", {"resource_group": "fast"}
    )
    assert (status, json.loads(text)["resource_group"]) == (200, "fast")
    await FakeAgent(store, incarnation="restarted").report()
    assert (await store.agents.get("node-1")).resource_group == "fast"
    assert [one.agent_id for one in await store.scheduling.agent_states("fast")] == ["node-1"]
    [event] = (await store.agents.history("node-1")).items
    assert (event.event, event.detail) == ("assign", "to resource group fast")


async def test_an_agents_group_exists(store: Store) -> None:
    """This includes a group in which a manager of the previous release registers an agent."""
    await FakeAgent(store).report()
    await store.database.fetch("UPDATE agents SET resource_group = 'new' WHERE id = 'node-1'")
    assert (await store.groups.get("new")).agents == 1
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await store.database.fetch("UPDATE agents SET assigned_group = 'nowhere'")


async def test_a_group_tells_what_its_agents_run_and_each_runtime_what_it_is_like(
    store: Store, api: Api
) -> None:
    assert json.loads((await api.call("ann", "GET", "/v1/groups/default"))[1])["runtimes"] == []
    await FakeAgent(store).report()
    offered = json.loads((await api.call("ann", "GET", "/v1/groups/default"))[1])["runtimes"]
    known = {
        one["name"]: one
        for one in json.loads((await api.call("ann", "GET", "/v1/runtimes"))[1])["items"]
    }
    assert offered
    assert set(offered) <= set(known)
    assert known["docker"]["images"]
    assert "partition" in known["slurm"]["job_fields"]
