"""Changing endpoints through the API: merge patches, versions, idempotency keys, rollouts."""

from __future__ import annotations

from typing import Any

import pytest

from .served_api import Api, check_problem

MODEL = {"name": "team/m", "engine": "vllm", "model": "one", "env": {"A": "1", "B": "2"}}
PATH = "/v1/endpoints/team%2Fm"


async def create(api: Api, **more: object) -> Any:
    response, view = await api.request("POST", "/v1/endpoints", json=MODEL | more)
    assert (response.status, response.headers["ETag"]) == (201, '"1"'), view
    return view


async def test_patch_merges(api: Api) -> None:
    await create(api, arch="x86_64")
    change = {
        "model": "two",
        "env": {"A": None, "C": "3"},
        "arch": None,
        "rollout": {"max_surge": 2},
    }
    response, view = await api.request("PATCH", PATH, json=change)
    assert (response.status, response.headers["ETag"], view["revision"]) == (200, '"2"', 2)
    spec = view["spec"]
    assert (spec["model"], spec["env"], spec["arch"]) == ("two", {"B": "2", "C": "3"}, None)
    assert (spec["rollout"]["max_surge"], spec["rollout"]["max_unavailable"]) == (2, 0)
    assert (await api.request("PATCH", PATH, json={"replicas": 2}))[1]["revision"] == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"modell": "x"}, "unknown field, did you mean 'model'?"),
        ({"name": "other"}, "unknown field"),
        ({"priority": 101}, "priority"),
        ({"engine": "custom"}, "engine 'custom' requires `command`"),
        ({"model": None}, "engine 'vllm' requires `model`"),
        ({"autoscale": {"min": 3, "max": 2}}, "`min` is 3, greater than `max`"),
        ({"autoscale": {"maxx": 2}}, "unknown field, did you mean 'max'?"),
        ({"rollout": {"max_surge": 0}}, "nothing could be replaced"),
        ({"autoscale": {"max": 2}, "replicas": 3}, "`autoscale` allows 1 to 2"),
    ],
)
async def test_invalid_patch_changes_nothing(api: Api, change: dict[str, Any], says: str) -> None:
    await create(api)
    response, problem = await api.request("PATCH", PATH, json=change)
    check_problem(response, problem, 422, "invalid-input")
    assert says in problem["detail"]
    assert (await api.request("GET", PATH))[1]["version"] == 1


async def test_version_must_match(api: Api) -> None:
    await create(api)
    for given in ('"1"', 'W/"2"', '"1", "3"', "*"):
        response, view = await api.request(
            "PATCH", PATH, json={"priority": 20}, headers={"If-Match": given}
        )
        assert response.status == 200, view

    response, problem = await api.request("PATCH", PATH, json={}, headers={"If-Match": '"1"'})
    check_problem(response, problem, 412, "precondition-failed")
    response, problem = await api.request("PATCH", PATH, json={}, headers={"If-Match": "5"})
    check_problem(response, problem, 422, "invalid-input")


async def test_repeated_create(api: Api) -> None:
    key = {"Idempotency-Key": "once"}
    first, view = await api.request("POST", "/v1/endpoints", json=MODEL, headers=key)
    again, same = await api.request("POST", "/v1/endpoints", json=MODEL, headers=key)
    assert (first.status, again.status, same["id"]) == (201, 201, view["id"])
    assert ("Idempotent-Replayed" in first.headers, again.headers["Idempotent-Replayed"]) == (
        False,
        "true",
    )


async def test_rollout_and_undo(api: Api) -> None:
    await create(api)
    response, problem = await api.request("POST", f"{PATH}/rollout/undo", json={})
    check_problem(response, problem, 409, "conflict")
    await api.request("PATCH", PATH, json={"model": "two"})
    assert (await api.request("GET", f"{PATH}/rollout"))[1]["revision"] == 2
    items = (await api.request("GET", f"{PATH}/revisions"))[1]["items"]
    assert [(one["revision"], one["current"], one["spec"]["model"]) for one in items] == [
        (2, True, "two"),
        (1, False, "one"),
    ]
    response, view = await api.request("POST", f"{PATH}/rollout/undo", json={"revision": 1})
    assert (view["revision"], view["spec"]["model"]) == (1, "one")
