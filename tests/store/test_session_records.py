"""Renaming sessions and removing the records of ended ones, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from moorage.manager.store import Store
from tests.store.conftest import FakeAgent, schedule, stop
from tests.store.tenancy_harness import Api, serve


async def _made(api: Api, name: str, caller: str = "ann", **fields: Any) -> str:
    body = {"name": name, "command": ["true"], **fields}
    status, text = await api.call(caller, "POST", "/v1/sessions", body)
    assert status == 201, text
    return str(json.loads(text)["id"])


async def _rename(api: Api, ref: str, name: str, caller: str = "ann") -> tuple[int, Any]:
    status, text = await api.call(caller, "PATCH", f"/v1/sessions/{ref}", {"name": name})
    return status, json.loads(text)


async def _names(api: Api, caller: str = "ann") -> list[str]:
    _, text = await api.call(caller, "GET", "/v1/sessions?sort=name")
    return [item["name"] for item in json.loads(text)["items"]]


async def test_a_session_is_renamed_unless_the_name_is_taken(store: Store) -> None:
    async with serve(store) as api:
        made = await _made(api, "one", user_labels={"team": "vision"})
        await _made(api, "two")
        await _made(api, "of-bob", "bob")
        status, view = await _rename(api, "one", "first")
        assert (status, view["id"], view["name"], view["spec"]["name"]) == (
            200,
            made,
            "first",
            "first",
        )
        assert view["user_labels"] == {"team": "vision"}
        assert (await api.call("ann", "GET", "/v1/sessions/one"))[0] == 404
        status, problem = await _rename(api, "first", "two")
        assert (status, problem["detail"]) == (409, "a live session named 'two' already exists")
        assert (await _rename(api, "first", "of-bob"))[0] == 200, "names are of a project"
        assert (await _rename(api, made, "bäd"))[0] == 422
        assert (await _rename(api, made, "x", "bob"))[0] == 404
        await stop(store, "two", actor="t")
        assert (await _rename(api, made, "two"))[0] == 200, "an ended one has it no more"


async def test_a_model_keeps_the_name_that_requests_have(store: Store) -> None:
    async with serve(store) as api:
        model = {"type": "inference", "engine": "custom", "probe": {"path": "/"}}
        await _made(api, "tiny", **model)
        status, problem = await _rename(api, "tiny", "other")
        assert (status, "requests for its model use this name" in problem["detail"]) == (409, True)
        assert await _names(api) == ["tiny"]


async def test_the_record_of_an_ended_session_is_removed(store: Store) -> None:
    async with serve(store) as api:
        made = await _made(api, "one")
        await _made(api, "two")
        status, text = await api.call("ann", "DELETE", "/v1/sessions/one")
        assert (status, "is PENDING: only sessions that have ended" in text) == (409, True)
        await stop(store, "one", actor="t")
        assert (await api.call("bob", "DELETE", f"/v1/sessions/{made}"))[0] == 404
        assert (await api.call("viewer", "DELETE", f"/v1/sessions/{made}"))[0] == 403
        assert (await api.call("ann", "DELETE", f"/v1/sessions/{made}"))[0] == 200
        assert await _names(api) == ["two"]
        for path in ("", "/history", "/logs", "/why"):
            assert (await api.call("admin", "GET", f"/v1/sessions/{made}{path}"))[0] == 404, path

        _, text = await api.call("admin", "GET", "/v1/audit?resource=sessions")
        [entry] = [one for one in json.loads(text)["items"] if one["status"] == 200]
        assert (entry["user"], entry["before"]["id"]) == ("ann", made)

    [row] = await store.database.fetch(
        "SELECT count(*) FROM session_history WHERE session_id = $1", made
    )
    assert row["count"] > 0, "retention deletes it, in its time"


async def test_what_others_refer_to_is_not_removed(store: Store) -> None:
    async with serve(store) as api:
        await _made(api, "first", type="batch")
        await _made(api, "after", type="batch", depends_on=[{"session": "first", "on": "any"}])
        await stop(store, "first", actor="t")
        status, text = await api.call("ann", "DELETE", "/v1/sessions/first")
        assert (status, "another session refers to it" in text) == (409, True)
        assert await _names(api) == ["after", "first"]


async def test_a_removed_session_never_lives(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        made = await _made(api, "one")
        await schedule(store)
    with pytest.raises(asyncpg.CheckViolationError, match="sessions_removed_have_ended"):
        await store.database.fetch("UPDATE sessions SET removed_at = now() WHERE id = $1", made)
