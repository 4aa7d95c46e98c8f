"""The REST resource for kept workspaces: listing and removal."""

from .served_api import Api, check_problem

BODY = {"name": "job", "command": ["true"], "workspace": "keep"}


async def test_workspaces_are_listed_with_session_names(api: Api) -> None:
    _, created = await api.request("POST", "/v1/sessions", json=BODY)
    assert created["spec"]["workspace"] == "keep"
    api.workspaces.keep(created["id"])
    api.workspaces.keep("forgotten")
    api.workspaces.silent = ["node-2"]
    response, listed = await api.request("GET", "/v1/workspaces")
    assert response.status == 200
    assert [(one["session"], one["session_id"]) for one in listed["items"]] == [
        ("job", created["id"]),
        ("", "forgotten"),
    ]
    assert listed["silent"] == ["node-2"]


async def test_workspace_is_removed_only_after_its_session_ended(api: Api) -> None:
    _, created = await api.request("POST", "/v1/sessions", json=BODY)
    api.workspaces.keep(created["id"])
    api.workspaces.keep("forgotten")
    check_problem(*await api.request("DELETE", "/v1/workspaces/job"), 409, "conflict")
    await api.request("POST", "/v1/sessions/job/stop")
    api.workspaces.in_use.add(created["id"])
    check_problem(*await api.request("DELETE", "/v1/workspaces/job"), 409, "conflict")
    api.workspaces.in_use.clear()

    for ref, session_id in (("job", created["id"]), ("forgotten", "forgotten")):
        response, removed = await api.request("DELETE", f"/v1/workspaces/{ref}")
        assert (response.status, [one["session_id"] for one in removed["items"]]) == (
            200,
            [session_id],
        )

    check_problem(*await api.request("DELETE", "/v1/workspaces/job"), 404, "not-found")
    api.workspaces.silent = ["node-2"]
    check_problem(*await api.request("DELETE", "/v1/workspaces/job"), 503, "agent-unreachable")


async def test_cluster_with_a_workspace_is_refused(api: Api) -> None:
    body = BODY | {"cluster": {"size": 2}}
    response, problem = await api.request("POST", "/v1/sessions", json=body)
    assert response.status == 422
    assert "workspace" in problem["detail"]
