"""The API's routes from a client's view."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.common.model.group_options import GroupOptions
from moorage.manager.identity.scope import Scope
from tests.store.conftest import mark_silent

from .served_api import MEMBER_KEY, Api, check_problem

BATCH = {"name": "job", "command": ["true"]}
MODEL = {"engine": "vllm", "model": "Qwen/Qwen3-0.6B"}


async def test_session_is_created_read_listed_and_stopped(api: Api) -> None:
    response, created = await api.request("POST", "/v1/sessions", json=BATCH)
    assert response.status == 201
    assert response.headers["Location"] == f"/v1/sessions/{created['id']}"
    assert (created["status"], created["slots"]) == ("PENDING", {"cpu": 1000, "mem": 1024**3})

    for ref in (created["id"], "job"):
        response, found = await api.request("GET", f"/v1/sessions/{ref}")
        assert (response.status, found) == (200, created)

    response, page = await api.request("GET", "/v1/sessions")
    assert (response.status, page) == (200, {"items": [created], "next": None, "unreadable": []})

    response, why = await api.request("GET", "/v1/sessions/job/why")
    assert (response.status, why["session_id"], why["status"]) == (200, created["id"], "PENDING")
    response, _ = await api.request("GET", "/v1/sessions/nobody/why")
    assert response.status == 404

    response, stopped = await api.request("POST", "/v1/sessions/job/stop")
    assert (response.status, stopped["status"]) == (202, "CANCELLED")

    response, history = await api.request("GET", f"/v1/sessions/{created['id']}/history")
    assert response.status == 200
    assert [(row["event"], row["to_status"], row["actor"]) for row in history["items"]] == [
        ("created", "PENDING", "key:root"),
        ("stop", "CANCELLED", "key:root"),
    ]


async def test_reached_limits_of_budgets_are_a_header(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    response, _ = await api.request("GET", "/v1/sessions")
    assert "X-Moorage-Budget-Warning" not in response.headers
    reached = ["the soft limit of user ann is reached", "that of project \u00e4 too"]

    async def warnings(scope: Scope) -> list[str]:
        return reached

    monkeypatch.setattr(api.store.budgets, "warnings", warnings)
    response, _ = await api.request("GET", "/v1/sessions")
    told = response.headers["X-Moorage-Budget-Warning"]
    assert told == "the soft limit of user ann is reached; that of project ? too"
    response, made = await api.request("POST", "/v1/sessions", json=BATCH)
    assert (response.status, made["warnings"][-2:]) == (201, reached)
    response, _ = await api.request("GET", "/livez")
    assert "X-Moorage-Budget-Warning" not in response.headers, "nobody in particular asks"


async def test_dry_run_returns_a_plan_and_creates_nothing(api: Api) -> None:
    key = {"Idempotency-Key": "dry"}
    _, refused = await api.request(
        "POST", "/v1/sessions/plan", json=BATCH, headers=key, key=MEMBER_KEY
    )
    assert (refused["fits"], refused["places"]) == (False, [])
    assert "the owner is not an administrator" in refused["text"]
    response, plan = await api.request("POST", "/v1/sessions/plan", json=BATCH, headers=key)
    assert (response.status, plan["fits"]) == (200, True)
    assert [place["agent_id"] for place in plan["places"]] == ["node-1"]
    assert "Location" not in response.headers
    _, page = await api.request("GET", "/v1/sessions")
    assert page["items"] == []
    created, _ = await api.request("POST", "/v1/sessions", json=BATCH, headers=key)
    assert created.status == 201, "the key was not used up"
    response, _ = await api.request("POST", "/v1/sessions/plan", json=BATCH | {"priority": 101})
    assert response.status == 422


async def test_clients_of_the_previous_release_plan_with_a_query_parameter(api: Api) -> None:
    pipeline = {"name": "train", "steps": [{"name": "load", "spec": {"command": ["true"]}}]}
    await api.request("PUT", "/v1/templates/job", json={"spec": BATCH})
    for path, body in (
        ("/v1/sessions", BATCH),
        ("/v1/templates/job/sessions", {}),
        ("/v1/pipelines", pipeline),
    ):
        _, today = await api.request("POST", f"{path}/plan", json=body)
        response, plan = await api.request("POST", f"{path}?dry_run=true", json=body)
        assert (response.status, plan.keys()) == (200, today.keys()), path
        assert "errors" not in plan, plan
        response, refused = await api.request("POST", f"{path}?dry_run=maybe", json=body)
        assert (response.status, refused["errors"][0]["field"]) == (422, "dry_run"), path

    _, page = await api.request("GET", "/v1/sessions")
    assert page["items"] == []


async def test_idempotency_key_creates_one_session(api: Api) -> None:
    key = {"Idempotency-Key": "3b1f"}
    first, created = await api.request("POST", "/v1/sessions", json=BATCH, headers=key)
    again, same = await api.request("POST", "/v1/sessions", json=BATCH, headers=key)
    assert (first.status, again.status, same["id"]) == (201, 201, created["id"])
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    other, problem = await api.request(
        "POST", "/v1/sessions", json=BATCH | {"priority": 3}, headers=key
    )
    assert (other.status, problem["code"]) == (409, "conflict")
    assert "3b1f" in problem["detail"]
    body = {"name": "theirs", "command": ["true"]}
    _, theirs = await api.request("POST", "/v1/sessions", json=body, headers=key, key=MEMBER_KEY)
    assert theirs["id"] != created["id"], "an idempotency key belongs to the API key that used it"


@pytest.mark.parametrize("key", ["", "   ", "x" * 256, "sch\u00f6n"])
async def test_invalid_idempotency_key_is_refused(api: Api, key: str) -> None:
    response, problem = await api.request(
        "POST", "/v1/sessions", json=BATCH, headers={"Idempotency-Key": key}
    )
    assert response.status == 422
    assert "Idempotency-Key" in problem["detail"]
    assert await api.count("sessions") == 0


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["c", "b", "a"]),
        ("?status=PENDING", ["c", "b"]),
        ("?status=pending,CANCELLED", ["c", "b", "a"]),
        ("?status=PENDING&status=CANCELLED", ["c", "b", "a"]),
        ("?status=", ["c", "b", "a"]),
        ("?status=CANCELLED&type=batch", ["a"]),
        ("?type=interactive", ["b"]),
        ("?resource_group=gpu", ["c"]),
        ("?name=b", ["b"]),
        ("?endpoint=nothing", []),
        ("?limit=2", ["c", "b"]),
    ],
)
async def test_session_filters_and_pages(api: Api, query: str, names: list[str]) -> None:
    await api.request("PUT", "/v1/groups/gpu", json={})
    for fields in (
        {"name": "a"},
        {"name": "b", "type": "interactive"},
        {"name": "c", "resource_group": "gpu"},
    ):
        await api.request("POST", "/v1/sessions", json=BATCH | fields)

    await api.request("POST", "/v1/sessions/a/stop")
    response, page = await api.request("GET", f"/v1/sessions{query}")
    assert response.status == 200
    assert [item["name"] for item in page["items"]] == names
    assert (page["next"] is not None) is (query == "?limit=2")
    if page["next"] is not None:
        _, rest = await api.request("GET", f"/v1/sessions{query}&cursor={page['next']}")
        assert ([item["name"] for item in rest["items"]], rest["next"]) == (["a"], None)


@pytest.mark.parametrize("path_name", ["Qwen/Qwen3-0.6B", "Qwen%2FQwen3-0.6B"])
async def test_endpoint_with_a_slash_in_its_name(api: Api, path_name: str) -> None:
    response, created = await api.request(
        "POST", "/v1/endpoints", json=MODEL | {"name": "Qwen/Qwen3-0.6B"}
    )
    assert response.status == 201
    assert response.headers["Location"] == "/v1/endpoints/Qwen%2FQwen3-0.6B"
    path = f"/v1/endpoints/{path_name}"
    assert (await api.request("GET", path))[1] == created
    response, scaled = await api.request("POST", f"{path}/scale", json={"replicas": 3})
    assert (response.status, scaled["replicas"]) == (200, 3)
    assert [
        item["replicas"] for item in (await api.request("GET", "/v1/endpoints"))[1]["items"]
    ] == [3]
    response, removed = await api.request("DELETE", path)
    assert (response.status, removed["status"]) == (202, "stopped")
    assert (await api.request("GET", path))[0].status == 404


async def test_names_that_end_in_an_action(api: Api) -> None:
    """A plain slash separates the action; an encoded one belongs to the name."""
    await api.request("POST", "/v1/endpoints", json=MODEL | {"name": "team/scale"})
    await api.request("POST", "/v1/sessions", json=BATCH | {"name": "team/logs"})
    assert (await api.request("GET", "/v1/endpoints/team/scale"))[0].status == 200
    assert (await api.request("POST", "/v1/endpoints/team/scale/scale", json={"replicas": 2}))[
        0
    ].status == 200
    assert (await api.request("GET", "/v1/sessions/team%2Flogs"))[1]["name"] == "team/logs"
    assert (await api.request("GET", "/v1/sessions/team/logs"))[0].status == 404
    assert (await api.request("POST", "/v1/sessions/team/logs/stop"))[0].status == 202


async def test_agents(api: Api) -> None:
    response, listed = await api.request("GET", "/v1/agents")
    assert (response.status, [item["id"] for item in listed["items"]]) == (200, ["node-1"])
    response, one = await api.request("GET", "/v1/agents/node-1")
    assert (response.status, one["status"]) == (200, "ALIVE")
    assert (await api.request("GET", "/v1/agents/node-2"))[0].status == 404


async def test_only_administrators_forget_agents_and_only_lost_ones(api: Api) -> None:
    assert (await api.request("DELETE", "/v1/agents/node-1", key=MEMBER_KEY))[0].status == 403
    assert (await api.request("DELETE", "/v1/agents/node-1"))[0].status == 409
    await mark_silent(api.store, "node-1")
    response, removed = await api.request("DELETE", "/v1/agents/node-1")
    assert (response.status, removed["id"]) == (200, "node-1")
    assert (await api.request("DELETE", "/v1/agents/node-1"))[0].status == 404


async def test_resource_groups(api: Api) -> None:
    options = {"hol": "strict", "num_retries_to_skip": 0, "agent_selection": "dispersed"}
    response, put = await api.request("PUT", "/v1/groups/hpc/gpu", json=options)
    assert (response.status, put["name"], put["options"]) == (
        200,
        "hpc/gpu",
        GroupOptions(**options).model_dump(),
    )
    assert (await api.request("GET", "/v1/groups/hpc%2Fgpu"))[1] == put
    response, listed = await api.request("GET", "/v1/groups", key=MEMBER_KEY)
    assert [item["name"] for item in listed["items"]] == ["default", "hpc/gpu"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/livez", {"status": "ok", "checks": {}}),
        ("/readyz", {"status": "ok", "checks": {"postgres": "ok"}}),
        ("/version", {"version": "1.2.3"}),
        ("/metrics", "moorage_sessions 3\n"),
    ],
)
async def test_service_routes_need_no_key(api: Api, path: str, expected: Any) -> None:
    response, found = await api.request("GET", path, key=None)
    assert (response.status, found) == (200, expected)
    head, nothing = await api.request("HEAD", path, key=None)
    assert (head.status, nothing or "") == (200, "")


async def test_root_links_the_openapi_document(api: Api) -> None:
    response, start = await api.request("GET", "/", key=None)
    assert response.status == 200
    response, described = await api.request("GET", start["openapi"], key=None)
    assert (response.status, described["info"]["version"]) == (200, "1.2.3")


async def test_readyz_names_the_failed_check(api: Api) -> None:
    api.checks["postgres"] = "does not respond"
    response, health = await api.request("GET", "/readyz", key=None)
    assert (response.status, health) == (
        503,
        {"status": "unavailable", "checks": {"postgres": "does not respond"}},
    )
    assert (await api.request("GET", "/livez", key=None))[0].status == 200


async def test_readyz_names_what_needs_a_person_and_stays_ready(api: Api) -> None:
    api.degraded["rows of session"] = "1 left out"
    response, health = await api.request("GET", "/readyz", key=None)
    checks = {"postgres": "ok", "rows of session": "1 left out"}
    assert (response.status, health) == (200, {"status": "degraded", "checks": checks})


async def test_request_id_is_echoed_or_generated(api: Api) -> None:
    response, _ = await api.request("GET", "/livez", headers={"x-request-id": "abc-1"})
    assert response.headers["x-request-id"] == "abc-1"
    first, _ = await api.request("GET", "/nowhere", headers={"x-request-id": "a b" * 100})
    second, _ = await api.request("GET", "/livez")
    ids = {first.headers["x-request-id"], second.headers["x-request-id"]}
    assert len(ids) == 2
    assert all(len(request_id) == 36 for request_id in ids)


async def test_quotas(api: Api) -> None:
    await api.request("POST", "/v1/projects", json={"name": "vision/a"})
    body = {"slots": {"cuda.device": 0, "mem": "1GiB"}, "sessions": 0}
    response, put = await api.request("PUT", "/v1/quotas/project/vision/a", json=body)
    assert (response.status, put["scope"], put["name"]) == (200, "project", "vision/a")
    assert (put["slots"], put["sessions"], put["pending"]) == (
        {"cuda.device": 0, "mem": 1 << 30},
        0,
        None,
    )
    assert put["changed_by"] == "key:root"
    everything = {"items": [put], "next": None, "unreadable": []}
    assert (await api.request("GET", "/v1/quotas"))[1] == everything
    assert (await api.request("GET", "/v1/quotas", key=MEMBER_KEY))[1]["items"] == [], (
        "of another project"
    )
    assert (await api.request("GET", "/v1/quotas/project/vision%2Fa"))[1] == put
    assert (await api.request("DELETE", "/v1/quotas/project/vision/a"))[1] == put
    assert (await api.request("GET", "/v1/quotas/project/vision/a"))[0].status == 404


@pytest.mark.parametrize("resource", ["quotas", "budgets"])
@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("project", "lovelaec", ", did you mean 'lovelace'?"),
        ("user", "adda", ", did you mean 'ada'?"),
        ("user", "somebody", ""),
        ("key", "rot", ", did you mean 'root'?"),
    ],
)
async def test_limits_of_names_that_do_not_exist_are_refused(
    api: Api, resource: str, kind: str, name: str, meant: str
) -> None:
    if resource == "quotas" and kind == "key":
        return  # keys have no quotas

    unit = "/month/gpu" if resource == "budgets" else ""
    body = {"hard": 5} if resource == "budgets" else {"sessions": 1}
    response, problem = await api.request("PUT", f"/v1/{resource}/{kind}{unit}/{name}", json=body)
    check_problem(response, problem, 404, "not-found")
    assert f"there is no {kind} {name!r}{meant}" in problem["detail"]
    assert f"`moorage {kind}s create`" in problem["next_step"]
    assert await api.count(resource) == 0


async def test_sessions_belong_to_the_owner_of_the_key(api: Api) -> None:
    _, created = await api.request("POST", "/v1/sessions", key=MEMBER_KEY, json={"command": ["x"]})
    assert (created["user"], created["project"]) == ("ada", "lovelace")


async def test_infeasible_session_has_a_warning_and_is_refused_with_strict(api: Api) -> None:
    body = {"command": ["x"], "resources": {"cuda.device": 9}}
    response, created = await api.request("POST", "/v1/sessions", json=body)
    assert response.status == 201
    (warning,) = created["warnings"]
    assert "could ever hold the session, even when empty" in warning
    assert "needs 9 cuda.device" in warning
    response, problem = await api.request("POST", "/v1/sessions?strict=true", json=body)
    assert (response.status, problem["code"]) == (409, "infeasible")
    assert "needs 9 cuda.device" in problem["detail"]
    assert "moorage agents" in problem["next_step"]
    assert await api.count("sessions") == 1
    small = {"command": ["x"], "resources": {"cuda.device": 8}}
    response, created = await api.request("POST", "/v1/sessions?strict=true", json=small)
    assert (response.status, created["warnings"]) == (201, [])


async def test_names_of_projects_are_in_the_metrics_of_auditors_only(api: Api) -> None:
    """Anyone who reaches the address can read the routes that need no key."""
    _, text = await api.request("GET", "/metrics", key=None)
    assert "vision" not in text
    _, text = await api.request("GET", "/v1/metrics")
    assert 'moorage_ledger_requests{project="vision"} 3' in text
    _, text = await api.request("GET", "/v1/metrics", key=MEMBER_KEY)
    assert "vision" not in text
