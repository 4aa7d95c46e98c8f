"""Apps and access tokens by REST: made, listed, revoked, and for whom."""

from __future__ import annotations

import pytest
from memory_store import ADMIN_KEY, MEMBER_KEY
from served_api import Api, check_problem

ASK = {"command": ["x"], "type": "interactive", "name": "lab", "ports": [{"name": "jupyter"}]}


async def test_an_access_token_is_made_shown_once_listed_and_revoked(api: Api) -> None:
    _, session = await api.ask("POST", "/v1/sessions", json=ASK)
    _, apps = await api.ask("GET", "/v1/sessions/lab/apps")
    path = f"/apps/{session['id']}/jupyter"
    assert [(app["name"], app["protocol"], app["path"]) for app in apps["items"]] == [
        ("jupyter", "http", path)
    ]
    at = "/v1/sessions/lab/apps/jupyter/access-tokens"
    answer, made = await api.ask("POST", at, json={"lifetime_s": 60})
    assert answer.status == 201
    assert answer.headers["Cache-Control"] == "no-store"
    assert (
        answer.headers["Location"] == f"/v1/sessions/{session['id']}/apps/jupyter/access-tokens/{made['id']}"
    )
    assert (made["path"], made["created_by"]) == (path, "key:root")
    access_token = made["access_token"]
    _, listed = await api.ask("GET", at)
    assert [one["id"] for one in listed["items"]] == [made["id"]]
    assert access_token not in str(listed)
    gone, view = await api.ask("DELETE", answer.headers["Location"])
    assert (gone.status, view["id"]) == (200, made["id"])
    again, problem = await api.ask("DELETE", f"{at}/{made['id']}")
    check_problem(again, problem, 404, "not-found")


@pytest.mark.parametrize(
    ("method", "rest"),
    [("POST", "access-tokens"), ("GET", "access-tokens"), ("DELETE", "access-tokens/x"), ("GET", "")],
)
async def test_who_may_not_see_a_session_gets_no_access_token_to_it(api: Api, method: str, rest: str) -> None:
    await api.ask("POST", "/v1/sessions", key=ADMIN_KEY, json=ASK)
    body = {"json": {}} if method == "POST" else {}
    path = f"/v1/sessions/lab/apps/jupyter/{rest}" if rest else "/v1/sessions/lab/apps"
    answer, problem = await api.ask(method, path, key=MEMBER_KEY, **body)
    check_problem(answer, problem, 404, "not-found")


@pytest.mark.parametrize("lifetime", [0, 9, 2_592_001, "soon", -1])
async def test_a_lifetime_out_of_bounds(api: Api, lifetime: object) -> None:
    await api.ask("POST", "/v1/sessions", json=ASK)
    answer, problem = await api.ask(
        "POST", "/v1/sessions/lab/apps/jupyter/access-tokens", json={"lifetime_s": lifetime}
    )
    check_problem(answer, problem, 422, "invalid-input")
    assert "lifetime_s" in str(problem["errors"])


@pytest.mark.parametrize(
    ("ports", "told"),
    [
        ([{"name": "a"}, {"name": "a"}], "name 'a' occurs twice"),
        ([{"name": "A"}], "name"),
        ([{"name": "a", "protocol": "udp"}], "http, tcp"),
        ([{"name": "a", "port": 0}], "port"),
        ([{"name": "a", "port": 80}], "leave it out"),
        ([{"name": "a", "protocol": "tcp", "base_path": True}], "only http ports"),
        ([{"name": f"a{n}"} for n in range(17)], "ports"),
    ],
)
async def test_ports_that_cannot_be(api: Api, ports: object, told: str) -> None:
    answer, problem = await api.ask("POST", "/v1/sessions", json={**ASK, "ports": ports})
    check_problem(answer, problem, 422, "invalid-input")
    assert told in str(problem)
