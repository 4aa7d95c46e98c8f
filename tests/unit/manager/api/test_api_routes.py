"""Every route once, as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from memory_store import MEMBER_KEY
from served_api import Api

from moorage.common.model.group_options import GroupOptions
from moorage.common.model.status import AgentStatus

BATCH = {"name": "job", "command": ["true"]}
MODEL = {"engine": "vllm", "model": "Qwen/Qwen3-0.6B"}


async def test_a_session_is_created_read_listed_and_stopped(api: Api) -> None:
    answer, made = await api.ask("POST", "/v1/sessions", json=BATCH)
    assert answer.status == 201
    assert answer.headers["Location"] == f"/v1/sessions/{made['id']}"
    assert (made["status"], made["slots"]) == ("PENDING", {"cpu": 1000, "mem": 1024**3})

    for ref in (made["id"], "job"):
        answer, found = await api.ask("GET", f"/v1/sessions/{ref}")
        assert (answer.status, found) == (200, made)

    answer, page = await api.ask("GET", "/v1/sessions")
    assert (answer.status, page) == (200, {"items": [made], "next": None})

    answer, why = await api.ask("GET", "/v1/sessions/job/why")
    assert (answer.status, why["session_id"], why["status"]) == (200, made["id"], "PENDING")
    answer, _ = await api.ask("GET", "/v1/sessions/nobody/why")
    assert answer.status == 404

    answer, stopped = await api.ask("POST", "/v1/sessions/job/stop")
    assert (answer.status, stopped["status"]) == (202, "CANCELLED")

    answer, history = await api.ask("GET", f"/v1/sessions/{made['id']}/history")
    assert answer.status == 200
    assert [(row["event"], row["to_status"], row["actor"]) for row in history["items"]] == [
        ("create", "PENDING", "key:root"),
        ("stop", "CANCELLED", "key:root"),
    ]


async def test_a_dry_run_answers_where_it_would_go_and_makes_nothing(api: Api) -> None:
    key = {"Idempotency-Key": "dry"}
    answer, plan = await api.ask("POST", "/v1/sessions?dry_run=true", json=BATCH, headers=key, key=MEMBER_KEY)
    assert (answer.status, plan["fits"], plan["text"]) == (200, True, "for ada")
    assert [place["agent_id"] for place in plan["places"]] == ["node-1"]
    assert "Location" not in answer.headers
    _, page = await api.ask("GET", "/v1/sessions")
    assert page["items"] == []
    made, _ = await api.ask("POST", "/v1/sessions", json=BATCH, headers=key, key=MEMBER_KEY)
    assert made.status == 201, "the key was not used up"
    answer, _ = await api.ask("POST", "/v1/sessions?dry_run=true", json=BATCH | {"priority": 101})
    assert answer.status == 422


async def test_a_create_under_a_key_happens_once(api: Api) -> None:
    key = {"Idempotency-Key": "3b1f"}
    first, made = await api.ask("POST", "/v1/sessions", json=BATCH, headers=key)
    again, same = await api.ask("POST", "/v1/sessions", json=BATCH, headers=key)
    assert (first.status, again.status, same["id"]) == (201, 201, made["id"])
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    other, problem = await api.ask("POST", "/v1/sessions", json=BATCH | {"priority": 3}, headers=key)
    assert (other.status, problem["code"]) == (409, "conflict")
    assert "3b1f" in problem["detail"]
    body = {"name": "theirs", "command": ["true"]}
    _, theirs = await api.ask("POST", "/v1/sessions", json=body, headers=key, key=MEMBER_KEY)
    assert theirs["id"] != made["id"], "a key belongs to the API key that used it"


@pytest.mark.parametrize("key", ["", "   ", "x" * 256, "sch\u00f6n"])
async def test_a_bad_idempotency_key_is_told(api: Api, key: str) -> None:
    answer, problem = await api.ask("POST", "/v1/sessions", json=BATCH, headers={"Idempotency-Key": key})
    assert answer.status == 422
    assert "Idempotency-Key" in problem["detail"]
    assert api.store.sessions.views == []


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
        ("?limit=2&cursor=2", ["a"]),
    ],
)
async def test_listing_sessions(api: Api, query: str, names: list[str]) -> None:
    for more in ({"name": "a"}, {"name": "b", "type": "interactive"}, {"name": "c", "resource_group": "gpu"}):
        await api.ask("POST", "/v1/sessions", json=BATCH | more)
    await api.ask("POST", "/v1/sessions/a/stop")
    answer, page = await api.ask("GET", f"/v1/sessions{query}")
    assert answer.status == 200
    assert [item["name"] for item in page["items"]] == names
    assert page["next"] == ("2" if query == "?limit=2" else None)


@pytest.mark.parametrize("written", ["Qwen/Qwen3-0.6B", "Qwen%2FQwen3-0.6B"])
async def test_an_endpoint_with_a_slash_in_its_name(api: Api, written: str) -> None:
    answer, made = await api.ask("POST", "/v1/endpoints", json=MODEL | {"name": "Qwen/Qwen3-0.6B"})
    assert answer.status == 201
    assert answer.headers["Location"] == "/v1/endpoints/Qwen%2FQwen3-0.6B"
    path = f"/v1/endpoints/{written}"
    assert (await api.ask("GET", path))[1] == made
    answer, scaled = await api.ask("POST", f"{path}/scale", json={"replicas": 3})
    assert (answer.status, scaled["replicas"]) == (200, 3)
    assert [item["replicas"] for item in (await api.ask("GET", "/v1/endpoints"))[1]["items"]] == [3]
    answer, gone = await api.ask("DELETE", path)
    assert (answer.status, gone["status"]) == (202, "stopped")
    assert (await api.ask("GET", path))[0].status == 404


async def test_names_that_end_like_an_action(api: Api) -> None:
    """A slash as it is belongs to the action, an encoded one to the name."""
    await api.ask("POST", "/v1/endpoints", json=MODEL | {"name": "team/scale"})
    await api.ask("POST", "/v1/sessions", json=BATCH | {"name": "team/logs"})
    assert (await api.ask("GET", "/v1/endpoints/team/scale"))[0].status == 200
    assert (await api.ask("POST", "/v1/endpoints/team/scale/scale", json={"replicas": 2}))[0].status == 200
    assert (await api.ask("GET", "/v1/sessions/team%2Flogs"))[1]["name"] == "team/logs"
    assert (await api.ask("GET", "/v1/sessions/team/logs"))[0].status == 404
    assert (await api.ask("POST", "/v1/sessions/team/logs/stop"))[0].status == 202


async def test_agents(api: Api) -> None:
    answer, listed = await api.ask("GET", "/v1/agents")
    assert (answer.status, [item["id"] for item in listed["items"]]) == (200, ["node-1"])
    answer, one = await api.ask("GET", "/v1/agents/node-1")
    assert (answer.status, one["status"]) == (200, "ALIVE")
    assert (await api.ask("GET", "/v1/agents/node-2"))[0].status == 404


async def test_an_agent_is_forgotten_by_an_administrator_and_not_while_it_is_alive(api: Api) -> None:
    assert (await api.ask("DELETE", "/v1/agents/node-1", key=MEMBER_KEY))[0].status == 403
    assert (await api.ask("DELETE", "/v1/agents/node-1"))[0].status == 409
    [view] = api.store.agents.views
    api.store.agents.views = [view.model_copy(update={"status": AgentStatus.LOST})]
    answer, gone = await api.ask("DELETE", "/v1/agents/node-1")
    assert (answer.status, gone["id"]) == (200, "node-1")
    assert (await api.ask("DELETE", "/v1/agents/node-1"))[0].status == 404


async def test_resource_groups(api: Api) -> None:
    options = {"hol": "strict", "num_retries_to_skip": 0, "agent_selection": "dispersed"}
    answer, put = await api.ask("PUT", "/v1/groups/hpc/gpu", json=options)
    assert (answer.status, put["name"], put["options"]) == (
        200,
        "hpc/gpu",
        GroupOptions(**options).model_dump(),
    )
    assert (await api.ask("GET", "/v1/groups/hpc%2Fgpu"))[1] == put
    answer, listed = await api.ask("GET", "/v1/groups", key=MEMBER_KEY)
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
async def test_what_needs_no_key(api: Api, path: str, expected: Any) -> None:
    answer, found = await api.ask("GET", path, key=None)
    assert (answer.status, found) == (200, expected)
    head, nothing = await api.ask("HEAD", path, key=None)
    assert (head.status, nothing or "") == (200, "")


async def test_the_root_points_to_the_description(api: Api) -> None:
    answer, start = await api.ask("GET", "/", key=None)
    assert answer.status == 200
    answer, described = await api.ask("GET", start["openapi"], key=None)
    assert (answer.status, described["info"]["version"]) == (200, "1.2.3")


async def test_not_ready_says_which_part(api: Api) -> None:
    api.checks["postgres"] = "does not answer"
    answer, health = await api.ask("GET", "/readyz", key=None)
    assert (answer.status, health) == (
        503,
        {"status": "unavailable", "checks": {"postgres": "does not answer"}},
    )
    assert (await api.ask("GET", "/livez", key=None))[0].status == 200


async def test_a_request_id_is_echoed_or_made(api: Api) -> None:
    answer, _ = await api.ask("GET", "/livez", headers={"x-request-id": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"
    first, _ = await api.ask("GET", "/nowhere", headers={"x-request-id": "a b" * 100})
    second, _ = await api.ask("GET", "/livez")
    ids = {first.headers["x-request-id"], second.headers["x-request-id"]}
    assert len(ids) == 2
    assert all(len(made) == 36 for made in ids)


async def test_quotas(api: Api) -> None:
    body = {"slots": {"cuda.device": 0, "mem": "1GiB"}, "sessions": 0}
    answer, put = await api.ask("PUT", "/v1/quotas/project/vision/a", json=body)
    assert (answer.status, put["scope"], put["name"]) == (200, "project", "vision/a")
    assert (put["slots"], put["sessions"], put["pending"]) == ({"cuda.device": 0, "mem": 1 << 30}, 0, None)
    assert put["changed_by"] == "key:root"
    assert (await api.ask("GET", "/v1/quotas", key=MEMBER_KEY))[1] == {"items": [put]}
    assert (await api.ask("GET", "/v1/quotas/project/vision%2Fa"))[1] == put
    assert (await api.ask("DELETE", "/v1/quotas/project/vision/a"))[1] == put
    assert (await api.ask("GET", "/v1/quotas/project/vision/a"))[0].status == 404


async def test_sessions_belong_to_the_owner_of_the_key(api: Api) -> None:
    _, made = await api.ask("POST", "/v1/sessions", key=MEMBER_KEY, json={"command": ["x"]})
    assert (made["user"], made["project"]) == ("ada", "lovelace")


async def test_what_never_fits_is_a_warning_or_with_strict_refused(api: Api) -> None:
    body = {"command": ["x"], "resources": {"cuda.device": 9}}
    answer, made = await api.ask("POST", "/v1/sessions", json=body)
    assert answer.status == 201
    (warning,) = made["warnings"]
    assert "could ever hold it, even when empty" in warning
    assert "needs 9 cuda.device" in warning
    answer, problem = await api.ask("POST", "/v1/sessions?strict=true", json=body)
    assert (answer.status, problem["code"]) == (409, "infeasible")
    assert "needs 9 cuda.device" in problem["detail"]
    assert "moorage agents" in problem["next_step"]
    assert len(api.store.sessions.views) == 1
    small = {"command": ["x"], "resources": {"cuda.device": 8}}
    answer, made = await api.ask("POST", "/v1/sessions?strict=true", json=small)
    assert (answer.status, made["warnings"]) == (201, [])
