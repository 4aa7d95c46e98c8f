"""REST resources for apps and access tokens: creation, listing, revocation and access."""

from __future__ import annotations

import pytest

from .served_api import ADMIN_KEY, MEMBER_KEY, Api, check_problem

SESSION = {"command": ["x"], "type": "interactive", "name": "lab", "ports": [{"name": "jupyter"}]}


async def test_access_token_is_created_listed_and_revoked(api: Api) -> None:
    _, session = await api.request("POST", "/v1/sessions", json=SESSION)
    _, apps = await api.request("GET", "/v1/sessions/lab/apps")
    path = f"/apps/{session['id']}/jupyter"
    assert [(app["name"], app["protocol"], app["path"]) for app in apps["items"]] == [
        ("jupyter", "http", path)
    ]
    at = "/v1/sessions/lab/apps/jupyter/access-tokens"
    response, created = await api.request("POST", at, json={"lifetime_s": 60})
    assert response.status == 201
    assert response.headers["Cache-Control"] == "no-store"
    assert (
        response.headers["Location"]
        == f"/v1/sessions/{session['id']}/apps/jupyter/access-tokens/{created['id']}"
    )
    assert (created["path"], created["created_by"]) == (path, "key:root")
    access_token = created["access_token"]
    _, listed = await api.request("GET", at)
    assert [one["id"] for one in listed["items"]] == [created["id"]]
    assert access_token not in str(listed)
    revoked, view = await api.request("DELETE", response.headers["Location"])
    assert (revoked.status, view["id"]) == (200, created["id"])
    second, problem = await api.request("DELETE", f"{at}/{created['id']}")
    check_problem(second, problem, 404, "not-found")


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("POST", "access-tokens"),
        ("GET", "access-tokens"),
        ("DELETE", "access-tokens/x"),
        ("GET", ""),
    ],
)
async def test_sessions_of_other_projects_give_no_access_tokens(
    api: Api, method: str, rest: str
) -> None:
    await api.request("POST", "/v1/sessions", key=ADMIN_KEY, json=SESSION)
    body = {"json": {}} if method == "POST" else {}
    path = f"/v1/sessions/lab/apps/jupyter/{rest}" if rest else "/v1/sessions/lab/apps"
    response, problem = await api.request(method, path, key=MEMBER_KEY, **body)
    check_problem(response, problem, 404, "not-found")


@pytest.mark.parametrize("lifetime", [0, 9, 2_592_001, "soon", -1])
async def test_invalid_lifetime_is_refused(api: Api, lifetime: object) -> None:
    await api.request("POST", "/v1/sessions", json=SESSION)
    response, problem = await api.request(
        "POST", "/v1/sessions/lab/apps/jupyter/access-tokens", json={"lifetime_s": lifetime}
    )
    check_problem(response, problem, 422, "invalid-input")
    assert "lifetime_s" in str(problem["errors"])


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        ([{"name": "a"}, {"name": "a"}], "name 'a' occurs twice"),
        ([{"name": "A"}], "name"),
        ([{"name": "a", "protocol": "udp"}], "http, tcp"),
        ([{"name": "a", "port": 0}], "port"),
        ([{"name": "a", "port": 80}], "omit the port"),
        ([{"name": "a", "protocol": "tcp", "base_path": True}], "only http ports"),
        ([{"name": f"a{n}"} for n in range(17)], "ports"),
    ],
)
async def test_invalid_ports_are_refused(api: Api, ports: object, message: str) -> None:
    response, problem = await api.request("POST", "/v1/sessions", json={**SESSION, "ports": ports})
    check_problem(response, problem, 422, "invalid-input")
    assert message in str(problem)
