"""Stored secrets through the REST API, and masks in answers."""

from __future__ import annotations

from typing import Any

import pytest

from .served_api import MEMBER_KEY, Api


async def test_secrets_belong_to_the_project_of_the_key(api: Api) -> None:
    spec = {"name": "lead", "project": "lovelace", "role": "project-admin"}
    _, created = await api.request("POST", "/v1/keys", json=spec)
    lead = created["secret"]
    refused, _ = await api.request(
        "PUT", "/v1/secrets/hf", key=MEMBER_KEY, json={"value": "hunter2"}
    )
    assert refused.status == 403
    response, put = await api.request("PUT", "/v1/secrets/hf", key=lead, json={"value": "hunter2"})
    assert (response.status, put["name"], put["project"], put["version"]) == (
        200,
        "hf",
        "lovelace",
        1,
    )
    assert "hunter2" not in str(put)
    assert (await api.request("GET", "/v1/secrets", key=MEMBER_KEY))[1] == {
        "items": [put],
        "next": None,
        "unreadable": [],
    }
    assert (await api.request("GET", "/v1/secrets"))[1] == {
        "items": [],
        "next": None,
        "unreadable": [],
    }
    assert (await api.request("DELETE", "/v1/secrets/hf"))[0].status == 404
    assert (await api.request("DELETE", "/v1/secrets/hf", key=lead))[1] == put
    assert (await api.request("GET", "/v1/secrets", key=MEMBER_KEY))[1] == {
        "items": [],
        "next": None,
        "unreadable": [],
    }


@pytest.mark.parametrize("body", [{}, {"value": ""}, {"value": "a\0b"}, {"value": 1}])
async def test_refused_values_are_not_repeated_in_the_answer(
    api: Api, body: dict[str, Any]
) -> None:
    response, problem = await api.request("PUT", "/v1/secrets/hf", json=body)
    assert response.status == 422
    assert problem["errors"][0]["field"] == "value"
    assert "\0" not in str(problem)
    assert await api.count("secrets") == 0


@pytest.mark.parametrize("name", ["-", "a b", "x" * 129])
async def test_names_of_secrets_are_checked(api: Api, name: str) -> None:
    response, problem = await api.request("PUT", f"/v1/secrets/{name}", json={"value": "a"})
    assert (response.status, problem["errors"][0]["field"]) == (422, "name")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/sessions", {"command": ["x"]}),
        ("/v1/sessions/plan", {"command": ["x"]}),
        ("/v1/endpoints", {"name": "m", "command": ["x"], "probe": {}}),
    ],
)
async def test_unknown_secrets_and_masks_are_refused(
    api: Api, path: str, body: dict[str, Any]
) -> None:
    response, problem = await api.request("POST", path, json=body | {"secret_env": {"T": "absent"}})
    assert (response.status, "no secret 'absent'" in problem["detail"]) == (422, True)
    assert [error["field"] for error in problem["errors"]] == ["secret_env"]
    response, problem = await api.request("POST", path, json=body | {"env": {"HF_TOKEN": "***"}})
    assert (response.status, "env.HF_TOKEN" in problem["detail"]) == (422, True)
    assert [error["field"] for error in problem["errors"]] == ["env.HF_TOKEN"]


async def test_a_variable_is_set_once(api: Api) -> None:
    body = {"command": ["x"], "env": {"T": "1"}, "secret_env": {"T": "hf"}}
    response, problem = await api.request("POST", "/v1/sessions", json=body)
    assert (response.status, "both set T" in str(problem)) == (422, True)


async def test_values_of_variables_that_look_like_secrets_are_masked(api: Api) -> None:
    body = {"command": ["x"], "name": "masked", "env": {"HF_TOKEN": "hunter2", "SEED": "1"}}
    _, created = await api.request("POST", "/v1/sessions", json=body)
    for path in ("/v1/sessions/masked", "/v1/sessions"):
        _, found = await api.request("GET", path)
        assert "hunter2" not in str(found)
    assert created["spec"]["env"] == {"HF_TOKEN": "***", "SEED": "1"}
