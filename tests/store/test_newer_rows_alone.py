"""One row that a newer release has stored, requested by itself or written: the answer states what
the row needs, and an operation on it is carried out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.link.proxy_messages import LimitNeed
from moorage.common.model.errors import Conflict
from moorage.common.model.templates import TemplateSpec
from moorage.manager.identity.keys import digest_of
from moorage.manager.loops import Leader
from moorage.manager.loops.stop_controller import StopController
from moorage.manager.serving.limit_shares import SHARE_S, StoredShares, share_of
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator, StopState

from .conftest import LOST_GRACE_S
from .tenancy_harness import ROOT, serve
from .test_newer_rows import SYSTEM, create, newer_spec, statuses, store_newer
from .test_rollouts import Platform, spec

CHECKS = {
    "users": ("users_platform_role_check", "users_status_check"),
    "projects": ("projects_status_check",),
    "api_keys": ("api_keys_role_check", "api_keys_granted_role_check", "only_admins_are_admins"),
    "memberships": ("memberships_role_check",),
    "link_peers": ("link_peers_kind_check",),
}


async def allow(store: Store, table: str) -> None:
    """Values that a newer schema allows."""
    drops = ", ".join(f"DROP CONSTRAINT IF EXISTS {name}" for name in CHECKS[table])
    await store.database.fetch(f"ALTER TABLE {table} {drops}")


def problem(text: str) -> str:
    found = json.loads(text)
    assert (found["code"], "moorage managers" in found["next_step"]) == (
        "needs-newer-manager",
        True,
    )
    return str(found["detail"])


ROWS = {
    "user": ("users", "platform_role", "mate", "/v1/users/mate"),
    "project": ("projects", "status", "vision", "/v1/projects/vision"),
    "key": ("api_keys", "granted_role", "mate", "/v1/keys/mate"),
}


@pytest.mark.parametrize("kind", ROWS)
async def test_a_row_that_is_asked_for_says_what_it_needs(store: Store, kind: str) -> None:
    table, column, name, path = ROWS[kind]
    async with serve(store) as api:
        await allow(store, table)
        await store_newer(store, table, column, f"name = '{name}'", value="wizard")
        status, text = await api.call("admin", "GET", path)
        assert status == 409
        assert problem(text).startswith(f"{kind} '{name}' needs a newer manager: ")
        status, text = await api.call("admin", "GET", path.rpartition("/")[0])
        page = json.loads(text)
        assert status == 200
        assert [row["name"] for row in page["unreadable"]] == [name]
        assert page["items"] != []


async def test_a_key_is_revoked_all_the_same_and_never_changed_to_a_secret_that_nobody_learns(
    store: Store,
) -> None:
    async with serve(store) as api:
        await allow(store, "api_keys")
        await store_newer(store, "api_keys", "granted_role", "name = 'mate'", value="wizard")
        before = await store.database.fetch("SELECT sha256 FROM api_keys WHERE name = 'mate'")
        status, text = await api.call("admin", "POST", "/v1/keys/mate/rotate", {})
        assert (status, problem(text)[:31]) == (409, "key 'mate' needs a newer manage")
        assert (
            await store.database.fetch("SELECT sha256 FROM api_keys WHERE name = 'mate'") == before
        )
        status, text = await api.call("admin", "DELETE", "/v1/keys/mate")
        assert status == 409
        assert problem(text).startswith("key 'mate' was revoked, but needs a newer manager")

    [row] = await store.database.fetch(
        "SELECT revoked_at IS NOT NULL AS is_revoked FROM api_keys WHERE name = 'mate'"
    )
    assert row["is_revoked"]


@pytest.mark.parametrize(
    ("table", "column"), [("api_keys", "granted_role"), ("memberships", "role")]
)
async def test_who_has_a_role_that_is_not_known_may_do_nothing(
    store: Store, table: str, column: str
) -> None:
    async with serve(store) as api:
        await allow(store, table)
        name = "name" if table == "api_keys" else "user_name"
        await store_newer(store, table, column, f"{name} = 'mate'", value="wizard")
        status, text = await api.call("mate", "GET", "/v1/sessions")
        assert status == 409
        assert problem(text).startswith("key 'mate' needs a newer manager: ")
        assert (await api.call("ann", "GET", "/v1/sessions"))[0] == 200
        assert len(await store.keys.grants()) == len((await store.keys.page(ROOT)).items) - (
            table != "api_keys"
        )


async def test_a_user_of_a_role_that_is_not_known_does_nothing_in_the_console(store: Store) -> None:
    async with serve(store):
        secret = await store.console_sessions.open(
            "root", None, from_address="", lifetime_s=60, idle_s=60
        )
        assert await store.console_sessions.find(digest_of(secret)) is not None
        await allow(store, "users")
        await store_newer(store, "users", "platform_role", "name = 'root'", value="wizard")
        with pytest.raises(Conflict, match="user 'root' needs a newer manager"):
            await store.console_sessions.find(digest_of(secret))


async def test_a_peer_is_revoked_all_the_same(store: Store) -> None:
    await allow(store, "link_peers")
    for name in ("odd", "even"):
        await store.database.fetch(
            "INSERT INTO link_peers (id, kind, name, public_key, certificate_until) "
            "VALUES (gen_random_uuid(), $1, $2, repeat('a', 64), now() + interval '1 day')",
            "wizard" if name == "odd" else "proxy",
            name,
        )

    page = await store.peers.page()
    assert ([one.name for one in page.items], [row.name for row in page.unreadable]) == (
        ["even"],
        ["odd"],
    )
    with pytest.raises(Conflict, match="wizard 'odd' was revoked, but needs a newer manager"):
        await store.peers.revoke("wizard", "odd", actor="root")

    assert (await store.peers.page()).unreadable == []


async def stop_controller(store: Store) -> tuple[StopController, SessionTerminator]:
    clock = ManualClock()
    leader = Leader(store, clock)
    await leader.run_once()
    terminator = SessionTerminator(store, LOST_GRACE_S)
    return StopController(store, leader, terminator, clock), terminator


async def test_a_stop_of_many_goes_past_those_that_are_not_known_and_waits_for_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if a whole chunk consists of such rows, because a newer manager created the
    newest ones."""
    monkeypatch.setattr("moorage.manager.termination.TOGETHER", 1)
    for name in ("first", "second", "odd"):
        await create(store, name)

    await store.database.fetch(
        "ALTER TABLE sessions DROP CONSTRAINT IF EXISTS sessions_status_check"
    )
    await store_newer(store, "sessions", "status", "name = 'odd'", value="DREAMING")
    stop = await store.session_stops.ask_for_user(SYSTEM, "ann")
    controller, terminator = await stop_controller(store)
    assert await terminator.carry_out(stop, ManualClock()) is StopState.WAITS
    rows = await store.database.fetch("SELECT name, status FROM sessions ORDER BY name")
    assert {row["name"]: row["status"] for row in rows} == {
        "first": "CANCELLED", "second": "CANCELLED", "odd": "DREAMING",
    }  # fmt: skip
    await store.database.fetch("UPDATE session_stops SET asked_at = asked_at - interval '1 minute'")
    await store.database.fetch("UPDATE sessions SET created_at = created_at - interval '2 minutes'")
    nudges: list[None] = []
    monkeypatch.setattr(controller.loop, "nudge", lambda: nudges.append(None))
    await controller.run_once()
    assert nudges == [], (
        "nothing changes until a newer manager stops it, so it is asked for as usual"
    )
    await store.database.fetch("UPDATE sessions SET status = 'PENDING' WHERE name = 'odd'")
    await controller.run_once()
    assert await store.session_stops.open(0) == []


async def test_a_stop_of_many_stops_a_session_whose_spec_is_not_known(store: Store) -> None:
    await create(store, "odd")
    await newer_spec(store, "odd")
    stop = await store.session_stops.ask_for_user(SYSTEM, "ann")
    _, terminator = await stop_controller(store)
    assert await terminator.carry_out(stop, ManualClock()) is StopState.DONE
    assert {one.value for one in (await statuses(store)).values()} == {"CANCELLED"}


@pytest.mark.parametrize(
    "held",
    [
        "moons",
        [1],
        {"until": "soon"},
        {"until": 1e12},
        {"until": 1e12, "held": "all", "wanted": [1, 1, 1], "used": [0, 0, 0]},
        {"until": 1e12, "held": [1], "wanted": [1, 1, 1], "used": [0, 0, 0]},
        {"until": 1e12, "held": [1, 1, {}], "wanted": [1, 1, 1], "used": [0, 0, 0]},
    ],
)
def test_a_share_that_is_not_known_stops_no_other_proxy(held: Any) -> None:
    """The share stays as it is until it lapses, because the manager that wrote it can read it."""
    need = LimitNeed("model/m", limit_requests=10, wanted_requests=4)
    stored = StoredShares("model/m", 1, {"other": held}, now=100.0)
    share, after = share_of(need, "p1", stored, proxies=2)
    assert share.requests >= 4
    assert after.shares["p1"]["until"] == 100.0 + SHARE_S
    kept = isinstance(held, dict) and held["until"] == 1e12
    assert ("other" in after.shares) is kept


async def test_what_cannot_be_shown_is_deleted_and_the_audit_says_that_it_was_not_known(
    store: Store,
) -> None:
    async with serve(store) as api:
        body = TemplateSpec.model_validate({"spec": {"command": ["x"]}})
        for name in ("odd", "even"):
            await store.templates.put(SYSTEM, name, body, [], for_all=False)

        await store.database.fetch("ALTER TABLE templates DISABLE TRIGGER USER")
        text = json.dumps({"spec": {"command": ["x"]}, "tomorrow": 1})
        await store_newer(store, "templates", "body", "name = 'odd'", value=text)
        assert (await api.call("lead", "DELETE", "/v1/templates/odd"))[0] == 409
        _, listed = await api.call("ann", "GET", "/v1/templates")
        page = json.loads(listed)
        assert ([one["name"] for one in page["items"]], page["unreadable"]) == (["even"], [])
        _, entries = await api.call("auditor", "GET", "/v1/audit?resource=templates&name=odd")

    before = json.loads(entries)["items"][0]["before"]
    assert before["needs_newer_manager"].startswith("template 'odd' needs a newer manager")


async def test_a_reason_of_a_rollback_that_is_not_known_hides_no_endpoint(store: Store) -> None:
    platform = Platform(store)
    for name in ("odd", "even"):
        await platform.service.create(SYSTEM, spec(name=name))

    where = "endpoint_id = (SELECT id FROM endpoints WHERE name = 'odd')"
    await store_newer(store, "endpoint_revisions", "reason", where, value="by the moons")
    await store.database.fetch(
        f"UPDATE endpoint_revisions SET failed_at = target_since WHERE {where}"
    )
    shown = {
        one.name: one.needs_newer_manager for one in (await platform.service.page(SYSTEM)).items
    }
    assert (shown["even"], shown["odd"].startswith("needs a newer manager: ")) == ("", True)
