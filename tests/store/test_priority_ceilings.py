"""Priority ceilings by role and by resource group, on every path by which work or a key is given a
priority. Existing priorities are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from moorage.common.model.group_options import GroupOptions, PriorityCeilings
from moorage.manager.api.routes import ROUTES
from moorage.manager.store import Store
from moorage.manager.store.platform.backups import cluster_facts
from moorage.server.doctor.checks import CheckResult
from moorage.server.doctor.priorities import check_priorities

from .tenancy_harness import Api, serve

PROGRAM: dict[str, Any] = {"command": ["x"]}
CRON: dict[str, Any] = {"cron": "0 0 1 1 *"}
MODEL = PROGRAM | {"name": "model", "probe": {}, "replicas": 0}


def step(**spec: Any) -> dict[str, Any]:
    return {"name": "pipeline", "steps": [{"name": "one", "spec": PROGRAM | spec}]}


def of_template(name: str, **more: Any) -> dict[str, Any]:
    return {"name": "pipeline", "steps": [{"name": "one", "template": name} | more]}


def ways(priority: int) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Requests that specify a priority, by the type of their body."""
    cluster = PROGRAM | {"cluster": {"size": 2}, "priority": priority}
    urgent: dict[str, Any] = {"overrides": {"priority": priority}}
    return {
        "SessionSpec": ("POST", "/v1/sessions", PROGRAM | {"priority": priority}),
        "SessionSpec, dry run": (
            "POST",
            "/v1/sessions/plan",
            PROGRAM | {"priority": priority},
        ),
        "SessionSpec, cluster": ("POST", "/v1/sessions", cluster),
        "TemplateSpec": ("PUT", "/v1/templates/new", {"spec": PROGRAM | {"priority": priority}}),
        "TemplateRun": ("POST", "/v1/templates/plain/sessions", urgent),
        "PipelineSpec": ("POST", "/v1/pipelines", step(priority=priority)),
        "PipelineSpec, dry run": ("POST", "/v1/pipelines/plan", step(priority=priority)),
        "PipelineSpec, template": ("POST", "/v1/pipelines", of_template("plain", **urgent)),
        "NewEndpoint": ("POST", "/v1/endpoints", MODEL | {"name": "new", "priority": priority}),
        "EndpointPatch": ("PATCH", "/v1/endpoints/model", {"priority": priority}),
        "SessionPatch": ("PATCH", "/v1/sessions/waiting", {"priority": priority}),
        "NewCronJob": (
            "POST",
            "/v1/cron-jobs",
            CRON | {"name": f"new-{priority}", "session": PROGRAM | {"priority": priority}},
        ),
        "CronJobSpec": (
            "PUT",
            "/v1/cron-jobs/changed",
            CRON | {"session": PROGRAM | {"priority": priority}},
        ),
        "KeySpec": ("POST", "/v1/keys", {"name": f"key-{priority}", "max_priority": priority}),
        "KeyLimits": ("PATCH", "/v1/keys/ann", {"max_priority": priority}),
    }


# Their callers have no role ceiling: only platform administrators may call them.
UNBOUNDED = {"ProjectSpec", "ProjectPatch", "QosOptions"}
# The options of resource groups define the ceilings themselves.
CEILINGS = {"GroupOptions", "NewGroup"}


def test_every_body_that_names_a_priority_is_tried() -> None:
    bodies = {one.body for one in ROUTES if one.body is not None}
    named = {body.__name__ for body in bodies if any(_names_priority(body))}
    # No schema checks their fields, which are those of a session's specification.
    named |= {"TemplateSpec", "TemplateRun"}
    assert named == {way.partition(",")[0] for way in ways(50)} | UNBOUNDED | CEILINGS


def _names_priority(body: type[BaseModel]) -> Iterator[bool]:
    schema = body.model_json_schema()
    for one in (schema, *schema.get("$defs", {}).values()):
        yield bool({"priority", "max_priority"} & one.get("properties", {}).keys())


async def post(
    api: Api, caller: str, way: tuple[str, str, dict[str, Any]]
) -> tuple[int, dict[str, Any]]:
    status, text = await api.call(caller, *way)
    return status, json.loads(text)


async def allow(api: Api, **ceilings: int) -> None:
    status, text = await api.call("admin", "PUT", "/v1/groups/default", {"max_priority": ceilings})
    assert status == 200, text


async def put(api: Api, name: str, caller: str = "admin", **spec: Any) -> int:
    query = "?for_all=true" if caller == "admin" else ""
    body = {"spec": PROGRAM | spec}
    return (await api.call(caller, "PUT", f"/v1/templates/{name}{query}", body))[0]


@pytest.mark.parametrize("way", list(ways(50)))
async def test_each_way_is_bounded_by_role_and_group(store: Store, way: str) -> None:
    async with serve(store) as api:
        assert await put(api, "plain") == 200
        assert (await api.call("ann", "POST", "/v1/endpoints", MODEL))[0] == 201
        waiting = PROGRAM | {"name": "waiting"}
        assert (await api.call("ann", "POST", "/v1/sessions", waiting))[0] == 201
        job = CRON | {"name": "changed", "session": PROGRAM}
        assert (await api.call("ann", "POST", "/v1/cron-jobs", job))[0] == 201
        refused, problem = await post(api, "ann", ways(11)[way])
        told = str(problem)
        assert refused == 403
        assert all(
            part in told
            for part in ("priority 11", "above 10", "role 'member'", "max_priority.member=11")
        )
        assert "ask an administrator of the project" in told
        assert (await post(api, "ann", ways(10)[way]))[0] < 300
        if way == "KeyLimits":  # from here on, the key itself would refuse
            return

        await allow(api, member=20)
        assert (await post(api, "ann", ways(21)[way]))[0] == 403
        assert (await post(api, "ann", _renamed(ways(20)[way])))[0] < 300
        if way == "KeySpec":  # another resource group may allow them a higher one
            return

        await allow(api, member=20, project_admin=60)
        assert (await post(api, "lead", ways(61)[way]))[0] == 403
        assert (await post(api, "lead", _renamed(ways(60)[way], "-2")))[0] < 300


def _renamed(
    way: tuple[str, str, dict[str, Any]], suffix: str = "-1"
) -> tuple[str, str, dict[str, Any]]:
    method, path, body = way
    if method == "POST" and "name" in body:
        body = body | {"name": f"{body['name']}{suffix}"}
    return method, path, body


async def test_administrators_of_the_platform_have_no_ceiling(store: Store) -> None:
    async with serve(store) as api:
        await allow(api, member=0, project_admin=0)
        assert (await post(api, "admin", ways(100)["SessionSpec"]))[0] == 201


async def test_a_group_has_its_own_ceiling_and_loses_it(store: Store) -> None:
    await store.groups.put(
        "urgent", GroupOptions(max_priority=PriorityCeilings(member=70)), actor="root"
    )
    async with serve(store) as api:
        body = PROGRAM | {"priority": 70}
        assert (await api.call("ann", "POST", "/v1/sessions", body))[0] == 403
        assert (await api.call("ann", "POST", "/v1/sessions", body | {"resource_group": "urgent"}))[
            0
        ] == 201
        endpoint = MODEL | {"priority": 70, "resource_groups": ["urgent", "default"]}
        assert (await api.call("ann", "POST", "/v1/endpoints", endpoint))[0] == 403
        assert (await api.call("admin", "PUT", "/v1/groups/urgent", {}))[0] == 200
        assert (await api.call("ann", "POST", "/v1/sessions", body | {"resource_group": "urgent"}))[
            0
        ] == 403

    [row] = await store.database.fetch("SELECT options FROM resource_groups WHERE name = 'urgent'")
    assert "max_priority" not in row["options"], "the release before skips groups that have it"


async def test_an_endpoint_keeps_the_priority_that_it_has(store: Store) -> None:
    await store.groups.put("other", GroupOptions(), actor="root")
    async with serve(store) as api:
        await allow(api, member=50)
        assert (await api.call("ann", "POST", "/v1/endpoints", MODEL | {"priority": 50}))[0] == 201
        await allow(api, member=10)

        for patch, expected in (
            ({"env": {"A": "1"}}, 200),
            ({"priority": 50}, 200),
            ({"priority": 51}, 403),
            ({"resource_group": "other"}, 403),
            ({"priority": 11}, 200),
            ({"priority": 50}, 403),
        ):
            assert (await api.call("ann", "PATCH", "/v1/endpoints/model", patch))[0] == expected, (
                patch
            )


async def test_a_template_says_the_priority_of_its_own_session_only(store: Store) -> None:
    async with serve(store) as api:
        assert await put(api, "urgent", priority=50) == 200
        path = "/v1/templates/urgent/sessions"
        for overrides, expected in (
            ({}, 201),
            ({"name": "mine", "user_labels": {"a": "b"}}, 201),
            ({"command": ["other"]}, 403),
            ({"priority": 49}, 403),
            ({"command": ["other"], "priority": 10}, 201),
        ):
            status, text = await api.call("ann", "POST", path, {"overrides": overrides})
            assert status == expected, (overrides, text)

        for more, expected in (({}, 201), ({"overrides": {"command": ["other"]}}, 403)):
            body = of_template("urgent", **more) | {"name": f"p{expected}"}
            status, text = await api.call("ann", "POST", "/v1/pipelines", body)
            assert status == expected, text

        # A member's own version specifies no higher priority than the one before.
        assert await put(api, "urgent", "ann", priority=50, env={"A": "1"}) == 200
        assert await put(api, "urgent", "ann", priority=51) == 403
        assert await put(api, "new", "ann", priority=50) == 403


async def test_what_a_caller_chooses_is_no_priority_of_a_template(store: Store) -> None:
    async with serve(store) as api:
        body = {
            "spec": PROGRAM | {"priority": "{{ p }}"},
            "parameters": {"p": {"type": "integer", "default": 10}},
        }
        assert (await api.call("ann", "PUT", "/v1/templates/mine", body))[0] == 200
        for p, expected in ((10, 201), (11, 403)):
            run = {"parameters": {"p": p}}
            assert (await api.call("ann", "POST", "/v1/templates/mine/sessions", run))[
                0
            ] == expected

        chosen = {
            "spec": PROGRAM | {"priority": 50, "resource_group": "{{ g }}"},
            "parameters": {"g": {"default": "default"}},
        }
        assert (await api.call("admin", "PUT", "/v1/templates/chosen?for_all=true", chosen))[
            0
        ] == 200
        assert (await api.call("ann", "POST", "/v1/templates/chosen/sessions", {}))[0] == 403


async def test_group_defaults_of_templates_are_allowed(store: Store) -> None:
    await store.groups.put(
        "default", GroupOptions(template_defaults={"priority": 30}), actor="root"
    )
    async with serve(store) as api:
        assert await put(api, "plain") == 200
        assert (await api.call("ann", "POST", "/v1/templates/plain/sessions", {}))[0] == 201


async def test_a_pipeline_that_is_retried_keeps_its_priorities(store: Store) -> None:
    async with serve(store) as api:
        await allow(api, member=50)
        assert (await post(api, "ann", ways(50)["PipelineSpec"]))[0] == 201
        await store.database.fetch(
            "UPDATE sessions SET status = 'CANCELLED', reason = 'user-requested'"
        )
        await allow(api, member=10)
        assert (await post(api, "ann", ("POST", "/v1/pipelines/pipeline/retry", {})))[0] == 202
        rows = await store.database.fetch("SELECT DISTINCT priority FROM sessions")
        assert [row["priority"] for row in rows] == [50]


async def test_keys_that_are_older_than_ceilings_keep_their_priority(store: Store) -> None:
    async with serve(store) as api:
        await store.database.fetch("UPDATE api_keys SET kept_priority = 50 WHERE name = 'ann'")
        assert (await post(api, "ann", ways(50)["SessionSpec"]))[0] == 201
        assert (await post(api, "ann", ways(51)["SessionSpec"]))[0] == 403
        status, text = await api.call("ann", "POST", "/v1/keys/ann/rotate", {})
        assert status == 200
        api.keys["ann"] = json.loads(text)["secret"]
        assert (await post(api, "ann", ways(50)["SessionSpec"]))[0] == 201

        for highest in (20, None):  # once lowered, it stays lowered
            patch = {"max_priority": highest}
            assert (await api.call("admin", "PATCH", "/v1/keys/ann", patch))[0] == 200
            assert (await post(api, "ann", ways(21)["SessionSpec"]))[0] == 403
            assert (await post(api, "ann", ways(20)["SessionSpec"]))[0] == 201

        assert (await api.call("admin", "PATCH", "/v1/keys/bob", {"max_priority": 90}))[0] == 200
        assert (await post(api, "bob", ways(11)["SessionSpec"]))[0] == 403, (
            "a limit is no permission"
        )


async def test_the_doctor_lists_what_is_above_the_ceiling(store: Store) -> None:
    async with serve(store) as api:
        assert _texts(check_priorities(await cluster_facts(store.database.dsn))) == [
            "no key, template or queued session is above the ceiling of its role"
        ]
        await allow(api, member=60, project_admin=60)
        await store.database.fetch(
            "UPDATE api_keys SET kept_priority = 40 WHERE name IN ('ann', 'admin')"
        )
        assert await put(api, "urgent", priority=50) == 200
        for caller in ("ann", "lead", "admin"):
            assert (await post(api, caller, ways(60)["SessionSpec"]))[0] == 201

        await allow(api, member=10, project_admin=60)
        found = check_priorities(await cluster_facts(store.database.dsn))
        assert {one.status for one in found} == {"warn"}
        assert _texts(found) == [
            "keys above the ceiling of their role: ann (40)",
            "templates above the ceiling of their role: urgent (50, for all)",
            "queued sessions above the ceiling of their role: 1 of ann of vision in default (60)",
        ]
        queued = await store.database.fetch("SELECT DISTINCT priority FROM sessions")
        assert [row["priority"] for row in queued] == [60], "a ceiling takes nothing away"


def _texts(found: list[CheckResult]) -> list[str]:
    return [one.detail for one in found]
