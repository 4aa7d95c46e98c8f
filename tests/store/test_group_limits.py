"""Limits of resource groups, keys and templates: stored with constraints, enforced when a session is
created and by every scheduling pass."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from moorage.common.model.errors import QuotaExceeded
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.reasons import Reason
from moorage.common.model.run_limits import GroupLimits
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, Scheduler
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from moorage.manager.store.database.connections import DedicatedConnection
from moorage.manager.store.database.queries import SQL
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent, open_store, stop
from .tenancy_harness import Api, serve

SYSTEM = Scope.system()
ANN = Owner("ann", "vision")
BOB = Owner("bob", "vision")
PROGRAM: dict[str, Any] = {"command": ["x"]}

needs_owners = pytest.mark.usefixtures("owners")


async def limit(store: Store, name: str = "default", **limits: object) -> None:
    options = GroupOptions(limits=GroupLimits.model_validate(limits))
    known = {group.name for group in await store.groups.all()}
    await store.groups.put(name, options, actor="t", create=name not in known)


async def add(store: Store, name: str, owner: Owner = ANN, **more: object) -> None:
    base: dict[str, object] = {"command": ["x"], "resources": {"cuda.device": 1}}
    spec = SessionSpec.model_validate(base | {"name": name} | more)
    await store.sessions.create(Scope.system("t", owner), spec)


async def tick(store: Store) -> None:
    clock = StoreClock()
    async with Leader(store, clock) as leader:
        await Scheduler(
            store, leader, SessionTerminator(store, LOST_GRACE_S), ManagerMetrics(), clock=clock
        ).run_once()


async def placed(store: Store) -> list[str]:
    page = await store.sessions.page(SYSTEM, statuses=frozenset({Status.SCHEDULED}))
    return sorted(view.name for view in page.items)


async def refusals(store: Store, name: str) -> list[str]:
    hold = (await store.sessions.get(SYSTEM, name)).hold
    assert hold is not None
    assert (hold.reason, hold.attempts) == (Reason.QUOTA, 0)
    return hold.refusals


# -- stored --


async def test_limits_are_part_of_the_options(store: Store) -> None:
    limits = {
        "max_batch_time_s": 86_400.0,
        "default_batch_time_s": 3600.0,
        "max_per_session": {"cuda.device": 4, "mem": "64GiB"},
        "max_per_user": {"cpu": 1.5},
        "max_running_per_user": 3,
        "max_pending_per_user": 10,
    }
    await limit(store, **limits)
    view = await store.groups.get("default")
    assert view.options.limits == GroupLimits.model_validate(limits)
    [row] = await store.database.fetch("SELECT options FROM resource_groups WHERE name = 'default'")
    assert "limits" not in row["options"], "managers of the previous release read the options"

    await limit(store, max_running_per_user=2)
    found = (await store.groups.get("default")).options.limits
    assert found == GroupLimits(max_running_per_user=2), "the limits are replaced as a whole"
    await store.groups.put("default", GroupOptions(limits=GroupLimits()), actor="t")
    assert (await store.groups.get("default")).options.limits is None
    assert await store.database.fetch("SELECT FROM group_limits") == []


async def test_the_database_refuses_invalid_limits(store: Store) -> None:
    await limit(store, max_running_per_user=2, max_batch_time_s=60, default_batch_time_s=60)
    for wrong in (
        "max_batch_time_s = 0",
        "max_batch_time_s = 'infinity'",
        "max_interactive_time_s = 'NaN'",
        "default_batch_time_s = 61",
        "max_per_session = '[]'",
        "max_per_user = NULL",
        "max_running_per_user = 0",
        "max_pending_per_user = -1",
    ):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await store.database.fetch(f"UPDATE group_limits SET {wrong}")

    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await store.database.fetch("INSERT INTO group_limits (resource_group) VALUES ('nowhere')")


@needs_owners
async def test_limits_follow_a_renamed_group(store: Store) -> None:
    limits = {"max_pending_per_user": 1, "max_batch_time_s": 60.0}
    await limit(store, "training", **limits)
    await store.group_aliases.rename("training", "research", actor="t", if_match=None)
    assert (await store.groups.get("training")).options.limits == GroupLimits.model_validate(limits)
    assert (await store.groups.limits("training")).max_batch_time_s == 60, "by its former name"
    await add(store, "one", resource_group="training")
    for name in ("training", "research"):
        with pytest.raises(QuotaExceeded, match="'research'"):
            await add(store, "two", resource_group=name)

    await store.group_aliases.rename("research", "training", actor="t", if_match=None)
    assert (await store.groups.get("research")).options.limits == GroupLimits.model_validate(limits)


# -- waiting sessions --


@needs_owners
async def test_sessions_beyond_the_limit_wait_and_block_nobody(store: Store) -> None:
    await FakeAgent(store, "a", gpus=8).report()
    await limit(store, max_running_per_user=2)
    for n in range(4):
        await add(store, f"s{n}")

    await add(store, "other", BOB)
    await tick(store)
    assert await placed(store) == ["other", "s0", "s1"]
    line = "user ann in this resource group: 2 concurrent sessions of 2"
    assert await refusals(store, "s2") == [line]
    await tick(store)
    assert await placed(store) == ["other", "s0", "s1"]
    await stop(store, (await store.sessions.get(SYSTEM, "s0")).id)
    await limit(store, max_running_per_user=3)
    await tick(store)
    assert "s2" in await placed(store)
    await store.groups.put("default", GroupOptions(), actor="t")
    await tick(store)
    assert "s3" in await placed(store), "without a setting as before"


@needs_owners
async def test_a_user_holds_at_most_the_limit_in_this_group(store: Store) -> None:
    await FakeAgent(store, "a", gpus=8).report()
    await FakeAgent(store, "b", gpus=8, group="other").report()
    await limit(store, "other")
    await limit(store, max_per_user={"cuda.device": 2})
    for n in range(3):
        await add(store, f"s{n}")

    await add(store, "elsewhere", resource_group="other")
    await add(store, "without", resources={"cpu": 1})
    await tick(store)
    assert await placed(store) == ["elsewhere", "s0", "s1", "without"]
    assert await refusals(store, "s2") == [
        "user ann in this resource group: cuda.device: used 2 + requested 1 > limit 2 (over by 1)"
    ]


@needs_owners
async def test_a_planner_that_continues_applies_the_limit_to_new_users(store: Store) -> None:
    await FakeAgent(store, "a", gpus=8).report()
    await limit(store, max_running_per_user=1)
    clock = StoreClock()
    async with Leader(store, clock) as leader:
        scheduler = Scheduler(
            store, leader, SessionTerminator(store, LOST_GRACE_S), ManagerMetrics(), clock=clock
        )
        for n, owner in enumerate((ANN, ANN, BOB, BOB)):
            await add(store, f"s{n}", owner)
            await scheduler.run_once()

        assert await placed(store) == ["s0", "s2"]
        await limit(store, max_running_per_user=2)
        await scheduler.run_once()
        assert await placed(store) == ["s0", "s1", "s2", "s3"]


# -- pending sessions --


@needs_owners
async def test_pending_sessions_of_a_user_are_limited_by_group(store: Store) -> None:
    await limit(store, "other")
    await limit(store, max_pending_per_user=2)
    await add(store, "one")
    await add(store, "two")
    expected = "user 'ann' may have 2 pending sessions in resource_group 'default'"
    with pytest.raises(QuotaExceeded, match=expected) as caught:
        await add(store, "three")

    assert caught.value.errors[0]["allowed"] == 2
    await add(store, "bobs", BOB)
    await add(store, "elsewhere", resource_group="other")
    await stop(store, (await store.sessions.get(SYSTEM, "one")).id)
    await add(store, "three")


@needs_owners
async def test_concurrent_creates_respect_the_limit(store: Store) -> None:
    await limit(store, max_pending_per_user=25)
    asked = (add(store, f"s{n}") for n in range(60))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 35
    assert await store.groups.pending_of("ann") == {"default": 25}


@needs_owners
async def test_concurrent_creates_in_two_managers_respect_the_limit(
    store: Store, migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await limit(store, max_pending_per_user=1)
    uncommitted: list[DedicatedConnection] = []
    fetch = DedicatedConnection.fetch

    async def fetch_without_commit(
        connection: DedicatedConnection, sql: str, *args: Any
    ) -> list[Any]:
        if sql == SQL["session_create_checked"] and not uncommitted:
            uncommitted.append(connection)
            await fetch(connection, "BEGIN")
        return await fetch(connection, sql, *args)

    monkeypatch.setattr(DedicatedConnection, "fetch", fetch_without_commit)
    async with open_store(migrated_database) as other:
        await add(other, "theirs")
        mine = asyncio.create_task(add(store, "mine"))
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        async with asyncio.timeout(10):
            while not (await store.database.fetch(blocked))[0]["count"]:
                assert not mine.done(), "it missed the uncommitted create and exceeds the limit"

        await fetch(uncommitted[0], "COMMIT")
        with pytest.raises(QuotaExceeded):
            await mine

    assert await store.groups.pending_of("ann") == {"default": 1}


# -- through the API --


async def post(api: Api, path: str, caller: str = "ann", **body: Any) -> tuple[int, dict[str, Any]]:
    status, text = await api.call(caller, "POST", path, body)
    return status, json.loads(text)


async def test_a_refusal_names_the_field_the_limit_and_the_groups_that_accept_it(
    store: Store,
) -> None:
    await FakeAgent(store, "a", gpus=8).report()
    await FakeAgent(store, "b", gpus=8, group="long").report()
    await FakeAgent(store, "c", gpus=1, group="small").report()
    for name in ("closed", "retired", "inference"):
        await FakeAgent(store, name, gpus=8, group=name).report()
    await limit(store, max_batch_time_s=3600, max_per_session={"cuda.device": 4})
    await limit(store, "long", max_batch_time_s=86_400)
    await store.groups.put("closed", GroupOptions(projects=["speech"]), actor="t")
    only = GroupOptions.model_validate({"session_types": ["inference"]})
    await store.groups.put("inference", only, actor="t")
    await store.groups.retire("retired", actor="t", drain=True)

    async with serve(store) as api:
        long = PROGRAM | {"timeout_s": 7200, "resources": {"cuda.device": 2}}
        for path in ("/v1/sessions/plan", "/v1/sessions"):
            status, problem = await post(api, path, **long)
            assert (status, problem["code"]) == (403, "limit-exceeded")
            assert problem["detail"] == (
                "timeout_s = 7200 is above 3600, the time limit of resource_group 'default'"
            )
            assert problem["next_step"] == (
                "set timeout_s to 3600 or less; or use resource group long, which would accept it"
            )
            assert problem["errors"] == [
                {
                    "in": "body",
                    "field": "timeout_s",
                    "found": "7200",
                    "allowed": "3600",
                    "resource_groups": ["long"],
                    "message": problem["detail"],
                }
            ]

        large = {"resources": {"cuda.device": 8}}
        _, problem = await post(api, "/v1/sessions", **PROGRAM, **large)
        assert problem["errors"][0]["field"] == "resources.cuda.device"
        assert problem["errors"][0]["resource_groups"] == ["long"]
        model = PROGRAM | {"name": "model", "probe": {}, "replicas": 0}
        status, problem = await post(api, "/v1/endpoints", **model, **large)
        assert (status, problem["code"]) == (403, "limit-exceeded")
        step = {"name": "one", "spec": PROGRAM | large}
        status, problem = await post(api, "/v1/pipelines", name="p", steps=[step])
        assert (status, problem["code"]) == (403, "limit-exceeded")
        assert problem["detail"].startswith("step 'one': resources.cuda.device = 8 is above 4")
        assert problem["errors"][0]["resource_groups"] == ["long"]
        status, _ = await post(api, "/v1/sessions", **long, resource_group="long")
        assert status == 201


async def test_sessions_without_a_time_limit_get_the_default(store: Store) -> None:
    await limit(
        store,
        default_batch_time_s=600,
        max_batch_time_s=3600,
        max_interactive_time_s=28_800,
    )
    async with serve(store) as api:
        _, made = await post(api, "/v1/sessions", **PROGRAM)
        assert made["spec"]["timeout_s"] == 600
        _, made = await post(api, "/v1/sessions", **PROGRAM, timeout_s=3600)
        assert made["spec"]["timeout_s"] == 3600
        _, made = await post(api, "/v1/sessions", **PROGRAM, type="interactive")
        assert made["spec"]["max_lifetime_s"] == 28_800
        step = {"name": "one", "spec": PROGRAM}
        _, made = await post(api, "/v1/pipelines", name="p", steps=[step])
        run = await store.sessions.get(SYSTEM, made["steps"][0]["session_id"])
        assert run.spec.timeout_s == 600
        # The limit counts from the start of the run.
        assert run.deadline_at is None


async def test_too_many_pending_sessions_name_the_groups_that_accept_more(store: Store) -> None:
    for name in ("default", "full", "free"):
        await FakeAgent(store, f"of-{name}", gpus=1, group=name).report()
        await limit(store, name, max_pending_per_user=1)

    async with serve(store) as api:
        for name in ("default", "full"):
            assert (await post(api, "/v1/sessions", **PROGRAM, resource_group=name))[0] == 201
        status, problem = await post(api, "/v1/sessions", **PROGRAM)
        assert (status, problem["code"]) == (409, "quota")
        assert problem["errors"][0]["resource_groups"] == ["free"]
        assert problem["next_step"].endswith("use resource group free, which would accept it")

        steps = [{"name": name, "spec": PROGRAM | {"resource_group": "free"}} for name in "ab"]
        status, problem = await post(api, "/v1/pipelines", name="p", steps=steps)
        assert (status, problem["code"]) == (409, "quota")
        assert "may have 1 pending sessions in resource_group 'free'" in problem["detail"]
        assert "the pipeline adds 2" in problem["detail"]
        assert (await post(api, "/v1/pipelines", name="p", steps=steps[:1]))[0] == 201


async def test_a_key_narrows_the_limits(store: Store) -> None:
    await limit(store, max_batch_time_s=3600)
    async with serve(store) as api:
        narrow = {"name": "narrow", "max_time_s": 60, "max_per_session": {"cpu": 1}}
        _, made = await post(api, "/v1/keys", **narrow)
        api.keys["narrow"] = made["secret"]
        _, listed = await api.call("ann", "GET", "/v1/keys/narrow")
        assert json.loads(listed)["max_per_session"] == {"cpu": 1}

        _, session = await post(api, "/v1/sessions", "narrow", **PROGRAM, resources={"cpu": 1})
        assert session["spec"]["timeout_s"] == 60
        status, problem = await post(api, "/v1/sessions", "narrow", **PROGRAM, timeout_s=61)
        assert status == 403
        assert problem["detail"].endswith("the time limit of key 'narrow'")
        large = {"resources": {"cpu": 2}}
        status, problem = await post(api, "/v1/sessions", "narrow", **PROGRAM, **large)
        assert (status, problem["errors"][0]["field"]) == (403, "resources.cpu")
        assert (await post(api, "/v1/keys", "narrow", name="wider"))[0] == 403

        status, _ = await api.call(
            "ann", "PATCH", "/v1/keys/narrow", {"max_time_s": None, "max_per_session": None}
        )
        assert status == 200
        _, session = await post(api, "/v1/sessions", "narrow", **PROGRAM, **large)
        assert session["spec"]["timeout_s"] == 3600


async def test_a_template_narrows_the_limits(store: Store) -> None:
    await limit(store, max_batch_time_s=3600)
    template = {"spec": PROGRAM, "max_time_s": 60, "max_per_session": {"cpu": 2}}
    async with serve(store) as api:
        assert (await api.call("ann", "PUT", "/v1/templates/short", template))[0] == 200
        path = "/v1/templates/short/sessions"
        _, session = await post(api, path)
        assert session["spec"]["timeout_s"] == 60
        status, problem = await post(api, path, overrides={"timeout_s": 61})
        assert status == 403
        assert problem["detail"].endswith("the time limit of template 'short@1'")
        step = {"name": "one", "template": "short", "overrides": {"resources": {"cpu": 3}}}
        status, problem = await post(api, "/v1/pipelines", name="p", steps=[step])
        assert status == 403
        assert "`max_per_session` of template 'short@1'" in problem["detail"]
