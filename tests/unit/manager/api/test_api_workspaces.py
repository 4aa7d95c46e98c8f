"""What sessions have kept, over the API."""

from served_api import Api, check_problem

BODY = {"name": "job", "command": ["true"], "workspace": "keep"}


async def test_they_are_listed_with_the_names_of_their_sessions(api: Api) -> None:
    _, made = await api.ask("POST", "/v1/sessions", json=BODY)
    assert made["spec"]["workspace"] == "keep"
    api.workspaces.keep(made["id"])
    api.workspaces.keep("forgotten")
    api.workspaces.silent = ["node-2"]
    answer, listed = await api.ask("GET", "/v1/workspaces")
    assert answer.status == 200
    assert [(one["session"], one["session_id"]) for one in listed["items"]] == [
        ("job", made["id"]),
        ("", "forgotten"),
    ]
    assert listed["silent"] == ["node-2"]


async def test_one_is_removed_when_its_session_has_ended(api: Api) -> None:
    _, made = await api.ask("POST", "/v1/sessions", json=BODY)
    api.workspaces.keep(made["id"])
    api.workspaces.keep("forgotten")
    check_problem(*await api.ask("DELETE", "/v1/workspaces/job"), 409, "conflict")
    await api.ask("POST", "/v1/sessions/job/stop")
    api.workspaces.refusing.add(made["id"])
    check_problem(*await api.ask("DELETE", "/v1/workspaces/job"), 409, "conflict")
    api.workspaces.refusing.clear()
    for ref, session_id in (("job", made["id"]), ("forgotten", "forgotten")):
        answer, gone = await api.ask("DELETE", f"/v1/workspaces/{ref}")
        assert (answer.status, [one["session_id"] for one in gone["items"]]) == (200, [session_id])
    check_problem(*await api.ask("DELETE", "/v1/workspaces/job"), 404, "not-found")
    api.workspaces.silent = ["node-2"]
    check_problem(*await api.ask("DELETE", "/v1/workspaces/job"), 503, "agent-unreachable")


async def test_a_cluster_has_none(api: Api) -> None:
    body = BODY | {"cluster": {"size": 2}}
    answer, problem = await api.ask("POST", "/v1/sessions", json=body)
    assert answer.status == 422
    assert "workspace" in problem["detail"]
