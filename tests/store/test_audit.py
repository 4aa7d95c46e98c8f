"""Audit log: every administrative write leaves an entry, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.manager.api.routes import ROUTES
from moorage.manager.secrets import Keyring
from tests.clocks import StoreClock

from .conftest import FakeAgent, open_store
from .tenancy_harness import Api, serve
from .test_tenancy import CANARY, World


@pytest.fixture
async def api(migrated_database: str, tmp_path: Path) -> AsyncIterator[Api]:
    clock = StoreClock()
    keyring = Keyring(tmp_path / "secrets-keys", clock)
    async with (
        open_store(migrated_database, clock, keyring=keyring) as store,
        serve(store) as served,
    ):
        yield served


async def entries(api: Api, query: str = "") -> list[dict[str, Any]]:
    status, text = await api.call("auditor", "GET", f"/v1/audit{query}")
    assert status == 200, text
    found: list[dict[str, Any]] = json.loads(text)["items"]
    return found


async def test_every_administrative_write_is_in_the_log(api: Api) -> None:
    await FakeAgent(api.store).report()
    world = World(api)
    missing = []
    is_as_made = False
    for row in ROUTES:
        if not is_as_made:
            await world.make()

        is_as_made = row.method == "GET"
        newest = (await entries(api, "?limit=1") or [{"id": 0}])[0]["id"]
        path = world.path(row)
        body = world.body(row) if row.access != "open" else {}
        if row.path in ("/v1/events", "/v1/join"):
            continue

        status, _ = await api.call("admin", row.method, path, body if row.method != "GET" else None)
        noted = [one for one in await entries(api, "?limit=5") if one["id"] > newest]
        is_administration = row.method != "GET" and row.tag not in {
            "sessions",
            "endpoints",
            "workspaces",
        }
        is_administration |= (row.method, row.path) == ("DELETE", "/v1/sessions/{ref:.+}")

        if is_administration and (noted or status not in (400, 422)):
            good = (
                len(noted) == 1 and noted[0]["status"] == status and noted[0]["resource"] == row.tag
            )
            good = good and noted[0]["from_address"] == "127.0.0.1" and noted[0]["actor"] != ""
        else:
            good = not noted

        if not good:
            missing.append(f"{row.method} {path}: {status} {noted}")

        assert CANARY + "-secret-value" not in json.dumps(noted)

    assert missing == []


async def test_an_entry_shows_what_changed_and_who_did_it(api: Api) -> None:
    await api.call("admin", "PUT", "/v1/groups/fast", {"strategy": "lifo"})
    await api.call("admin", "PUT", "/v1/groups/fast", {"strategy": "drf"})
    changed, made = await entries(api, "?resource=groups&name=fast")
    assert (made["before"], made["after"]["options"]["strategy"]) == (None, "lifo")
    assert changed["before"]["options"]["strategy"] == "lifo"
    assert changed["after"]["options"]["strategy"] == "drf"
    assert (changed["actor"], changed["user"], changed["action"]) == (
        "key:admin",
        "root",
        "put_group",
    )
    status, _ = await api.call("boss", "PUT", "/v1/groups/fast", {})
    assert status == 403
    assert (await entries(api, "?resource=groups&limit=1"))[0]["id"] == changed["id"], (
        "nothing was written"
    )


async def test_an_entry_shows_the_reuse_that_a_project_had_and_has(api: Api) -> None:
    for reuse in ("both", "never", None):
        status, text = await api.call("admin", "PATCH", "/v1/projects/vision", {"reuse": reuse})
        assert (status, json.loads(text)["reuse"]) == (200, reuse)

    found = await entries(api, "?resource=projects&name=vision")
    assert [(one["before"]["reuse"], one["after"]["reuse"]) for one in reversed(found)] == [
        (None, "both"),
        ("both", "never"),
        ("never", None),
    ]
    assert (await api.call("ann", "PATCH", "/v1/projects/vision", {"reuse": "both"}))[0] == 403
    assert len(await entries(api, "?resource=projects&name=vision")) == 3, "nothing was written"


async def test_an_entry_of_a_refused_write_has_its_code_and_no_secret_is_kept(api: Api) -> None:
    await api.call("admin", "POST", "/v1/projects", {"name": "vision"})
    [refused] = await entries(api, "?resource=projects")
    assert (refused["status"], refused["code"], refused["after"]) == (409, "conflict", None)
    status, text = await api.call("admin", "POST", "/v1/keys", {"name": "robot", "user": "ann"})
    secret = json.loads(text)["secret"]
    [made] = await entries(api, "?resource=keys&name=robot")
    assert (status, made["after"]["secret"]) == (201, "***")
    assert secret not in json.dumps(made)
    assert await entries(api, "?until=2020-01-01T00:00:00Z") == []
    assert (await api.call("boss", "GET", "/v1/audit"))[0] == 403
