"""User labels on sessions and endpoints over HTTP: creation, change, selection, limits and the
index."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from moorage.manager.store import Store
from tests.store.conftest import FakeAgent
from tests.store.tenancy_harness import Api, serve


def _session(name: str, **labels: str) -> dict[str, Any]:
    return {"name": name, "command": ["true"], "user_labels": labels}


def _endpoint(name: str, **labels: str) -> dict[str, Any]:
    return {"name": name, "engine": "llamacpp", "model": "/m.gguf", "user_labels": labels}


async def _names(api: Api, path: str, selector: str, caller: str = "ann") -> list[str]:
    status, text = await api.call(caller, "GET", f"{path}?sort=name&selector={selector}")
    assert status == 200, text
    return [item["name"] for item in json.loads(text)["items"]]


async def test_sessions_and_endpoints_are_selected_by_their_labels(store: Store) -> None:
    async with serve(store) as api:
        for path, make in (("/v1/sessions", _session), ("/v1/endpoints", _endpoint)):
            for body in (
                make("a", team="vision", stage="dev"),
                make("b", team="vision", stage="prod"),
                make("c", team="speech"),
                make("d"),
            ):
                status, text = await api.call("ann", "POST", path, body)
                assert status == 201, text
                assert json.loads(text)["user_labels"] == body["user_labels"]

            assert await _names(api, path, "team%3Dvision") == ["a", "b"]
            assert await _names(api, path, "team%3Dvision,stage!%3Ddev") == ["b"]
            assert await _names(api, path, "stage in (dev,prod),team") == ["a", "b"]
            assert await _names(api, path, "team!%3Dvision") == ["c", "d"]
            assert await _names(api, path, "!team") == ["d"]
            assert await _names(api, path, "team%3Dvision", caller="bob") == [], (
                "of another project"
            )


async def test_labels_of_a_live_session_change_with_an_entry_in_its_history(store: Store) -> None:
    async with serve(store) as api:
        await api.call("ann", "POST", "/v1/sessions", _session("s", team="vision", stage="dev"))
        await api.call("ann", "POST", "/v1/endpoints", _endpoint("m", team="vision", stage="dev"))
        for path in ("/v1/sessions/s", "/v1/endpoints/m"):
            _, before = await api.call("ann", "GET", path)
            changes = {"user_labels": {"stage": None, "team": "speech", "new": ""}}
            status, text = await api.call("ann", "PATCH", path, changes)
            assert status == 200, text
            view = json.loads(text)
            assert view["user_labels"] == {"team": "speech", "new": ""}
            added = 1 if path == "/v1/sessions/s" else 0
            assert view["revision"] == json.loads(before)["revision"] + added
            assert (await api.call("bob", "PATCH", path, changes))[0] == 404
            assert (await api.call("viewer", "PATCH", path, changes))[0] == 403


async def test_stale_etag_of_an_endpoint_is_refused(store: Store) -> None:
    async with serve(store) as api:
        await api.call("ann", "POST", "/v1/endpoints", _endpoint("m"))
        headers = {"Authorization": f"Bearer {api.keys['ann']}", "If-Match": '"1"'}
        statuses = []
        for value in ("a", "b"):
            body = {"user_labels": {"k": value}}
            async with api.http.patch("/v1/endpoints/m", json=body, headers=headers) as response:
                statuses.append(response.status)
        assert statuses == [200, 412]


async def test_labels_beyond_the_limits_are_refused(store: Store) -> None:
    async with serve(store) as api:
        many = {f"k{n}": "" for n in range(20)}
        more = {f"l{n}": "" for n in range(20)}
        await api.call("ann", "POST", "/v1/sessions", _session("s", **many))
        await api.call("ann", "POST", "/v1/endpoints", _endpoint("m", **many))

        for path in ("/v1/sessions/s", "/v1/endpoints/m"):
            status, text = await api.call("ann", "PATCH", path, {"user_labels": more})
            assert status == 422, text
            assert "labels" in json.loads(text)["detail"]

        huge = _session("huge", k="x" * 900_000)
        status, text = await api.call("ann", "POST", "/v1/sessions", huge)
        assert status == 422
        assert "has 900000 characters; 63 are allowed" in text
        assert len(text) < 2_000, "the value is not repeated"
        status, text = await api.call(
            "ann", "POST", "/v1/endpoints", _endpoint("huge", k="x" * (1 << 20))
        )
        assert (status, json.loads(text)["code"]) == (413, "body-too-large")


async def test_concurrent_changes_all_apply(store: Store) -> None:
    async with serve(store) as api:
        await api.call("ann", "POST", "/v1/sessions", _session("s"))
        changes = ({"user_labels": {f"k{n}": str(n)}} for n in range(10))
        found = await asyncio.gather(
            *(api.call("ann", "PATCH", "/v1/sessions/s", one) for one in changes)
        )
        assert {status for status, _ in found} == {200}
        _, text = await api.call("ann", "GET", "/v1/sessions/s")
        assert json.loads(text)["user_labels"] == {f"k{n}": str(n) for n in range(10)}


async def test_selection_uses_the_index(store: Store) -> None:
    await FakeAgent(store).report()
    plan = await store.database.fetch(
        'EXPLAIN SELECT id FROM sessions WHERE user_labels @> \'{"team": "vision"}\' '
        "AND user_labels <> '{}'::jsonb"
    )
    assert "sessions_by_label" in "\n".join(row[0] for row in plan)
