"""Wire format and authentication of the test server, in both profiles."""

from __future__ import annotations

import json

import pytest

from moorage.common.aio.clock import ManualClock
from tests.heappe import HeappeServer, Site
from tests.heappe.client import Caller, specification

LOGIN = "UserAndLimitationManagement/AuthenticateUserPassword"
CLUSTERS = "ClusterInformation/ListAvailableClusters"


def credentials(name: str, password: str) -> dict[str, dict[str, str]]:
    return {"Credentials": {"Username": name, "Password": password}}


def old(server: HeappeServer) -> bool:
    return server.profile == "6.3.2"


async def test_output_is_pascal_case_with_nulls_and_input_ignores_case(caller: Caller) -> None:
    given = {
        "JOBSPECIFICATION": {name.lower(): v for name, v in specification("a").items()},
        "Unknown": 1,
    }
    answer = await caller.call("POST", "jobmanagement/CREATEJOB", given)
    assert answer.status == 200
    assert answer.value["State"] == 1
    assert answer.value["StartTime"] is None
    assert answer.value["CreationTime"]
    info = await caller.call(
        "GET", "JobManagement/CurrentInfoForJob", SUBMITTEDJOBINFOID=answer.value["Id"]
    )
    assert info.value["Name"] == "a"
    deleted = await caller.call(
        "DELETE", "JobManagement/DeleteJob", {"submittedjobinfoid": answer.value["Id"]}
    )
    assert deleted.text == '"Job was deleted"'
    assert deleted.kind == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "limit", "member"),
    [
        ("PUT", "JobManagement/SubmitJob", 94, "CreatedJobInfoId"),
        ("PUT", "JobManagement/CancelJob", 98, "SubmittedJobInfoId"),
        ("DELETE", "JobManagement/DeleteJob", 120, "SubmittedJobInfoId"),
        ("POST", "DataTransfer/RequestDataTransfer", 170, "SubmittedTaskInfoId"),
        ("POST", "DataTransfer/CloseDataTransfer", 220, "X"),
        ("POST", LOGIN, 148, "X"),
        ("POST", "FileTransfer/DownloadPartsOfJobFilesFromCluster", 480, "SubmittedJobInfoId"),
    ],
)
async def test_bodies_have_limits_in_bytes(
    caller: Caller, method: str, path: str, limit: int, member: str
) -> None:
    plain = json.dumps({member: 1}).encode()
    over = await caller.send(method, path, plain + b" " * (limit + 1 - len(plain)))
    assert (over.status, over.text) == (413, "")
    assert (await caller.send(method, path, plain + b" " * (limit - len(plain)))).status != 413


async def test_get_with_a_body_is_refused_where_the_limit_is_zero(caller: Caller) -> None:
    assert (await caller.send("GET", CLUSTERS, b"{}")).status == 413
    assert (await caller.call("GET", CLUSTERS)).status == 200


async def test_both_shapes_of_400(server: HeappeServer, caller: Caller) -> None:
    bad = specification("a") | {"ClusterId": 99}
    answer = await caller.call("POST", "JobManagement/CreateJob", {"JobSpecification": bad})
    assert answer.status == (404 if old(server) else 400)
    assert answer.value["title"] == "Validation Problem"
    assert ("TraceId" in answer.value) is not old(server)
    assert ("(Request ID: " in answer.value["detail"]) is not old(server)
    long = specification("n" * 51)
    answer = await caller.call("POST", "JobManagement/CreateJob", {"JobSpecification": long})
    assert answer.status == 400
    assert answer.kind == "application/problem+json"
    assert "JobSpecification.Name" in answer.value["errors"]
    wrong = await caller.send("PUT", "JobManagement/SubmitJob", b'{"CreatedJobInfoId":"1"}')
    assert wrong.status == 400
    assert (
        await caller.send("PUT", "JobManagement/SubmitJob", b"{}", kind="text/plain")
    ).status == 415


@pytest.mark.parametrize(
    ("member", "value", "status"),
    [
        ("FileTransferMethodId", None, (500, 500)),
        ("Name", "meta-llama/Llama", (404, 400)),
        ("ProjectId", 2, (404, 404)),
    ],
)
async def test_jobs_that_are_refused(
    server: HeappeServer, caller: Caller, member: str, value: object, status: tuple[int, int]
) -> None:
    given = specification("a") | {member: value}
    answer = await caller.call("POST", "JobManagement/CreateJob", {"JobSpecification": given})
    assert answer.status == status[not old(server)]


@pytest.mark.parametrize(
    ("task", "status"),
    [
        ({"ClusterNodeTypeId": None}, (500, 500)),
        ({"WalltimeLimit": 999_999}, (404, 400)),
        ({"LogFile": None}, (404, 400)),
        ({"MaxCores": None}, (404, 200)),
        ({"TemplateParameterValues": []}, (404, 400)),
        (
            {
                "TemplateParameterValues": [
                    {"CommandParameterIdentifier": "no", "ParameterValue": ""}
                ]
            },
            (500, 500),
        ),
        (
            {
                "TemplateParameterValues": [
                    {"CommandParameterIdentifier": "args_b64", "ParameterValue": "a" * 1001}
                ]
            },
            (400, 400),
        ),
    ],
)
async def test_tasks_that_are_refused(
    server: HeappeServer, caller: Caller, task: dict[str, object], status: tuple[int, int]
) -> None:
    given = specification("a", **task)
    answer = await caller.call("POST", "JobManagement/CreateJob", {"JobSpecification": given})
    assert answer.status == status[not old(server)]


async def test_routes_that_do_not_exist_answer_in_plain_text(caller: Caller) -> None:
    missing = await caller.call("GET", "JobManagement/Nothing")
    assert (missing.status, missing.text, missing.kind) == (
        404,
        "Status Code: 404; Not Found",
        "text/plain",
    )
    wrong = await caller.call("POST", "JobManagement/SubmitJob", {})
    assert (wrong.status, wrong.text) == (405, "Status Code: 405; Method Not Allowed")


async def test_a_session_is_shared_slides_and_expires(server: HeappeServer) -> None:
    async with Caller(server, none="") as nobody:
        first = (await nobody.call("POST", LOGIN, credentials("agent", "secret-agent"))).value
        assert (
            await nobody.call("POST", LOGIN, credentials("agent", "secret-agent"))
        ).value == first
        for _ in range(3):
            await server.advance(800)
            assert (await nobody.call("GET", CLUSTERS, SessionCode=first)).status == 200

        await server.advance(901)
        expired = await nobody.call("GET", CLUSTERS, SessionCode=first)
        assert expired.status == 401
        assert expired.value["title"] == "Session Code Authentication Problem"
        assert "already expired at" in expired.value["detail"]
        assert (
            await nobody.call("POST", LOGIN, credentials("agent", "secret-agent"))
        ).value != first
        unknown = await nobody.call("GET", CLUSTERS, SessionCode="nonsense")
        title = "Unauthorized Access" if old(server) else "Access Forbidden"
        assert (unknown.status, unknown.value["title"]) == (401 if old(server) else 403, title)


async def test_wrong_passwords_and_keys(server: HeappeServer) -> None:
    async with Caller(server, **{"X-API-Key": "agent:wrong"}) as caller:
        assert (await caller.call("GET", CLUSTERS)).status == (401 if old(server) else 403)
        answer = await caller.call("POST", LOGIN, credentials("agent", "wrong"))
        assert answer.status == (502 if old(server) else 401)
        assert answer.value["title"] == (
            "External Service Error" if old(server) else "Authentication Failed"
        )
        assert (await caller.call("POST", LOGIN, credentials("agent@site", "x"))).status in (
            400,
            404,
        )


async def test_bearer_tokens() -> None:
    async with HeappeServer(clock=ManualClock(), site=Site(bearer=True)) as server:
        async with Caller(server, Authorization="Bearer jwt-agent") as caller:
            assert (await caller.call("GET", CLUSTERS)).status == 200
            token = {"Credentials": {"OpenIdAccessToken": "jwt-agent"}}
            answer = await caller.call(
                "POST", "UserAndLimitationManagement/AuthenticateLexisToken", token
            )
            assert answer.text == '"HEADER-AUTH-NEEDED"'

        async with Caller(server, Authorization="Bearer wrong") as caller:
            answer = await caller.call("GET", CLUSTERS)
            assert (answer.status, answer.text, answer.kind) == (401, "Unauthorized", "text/plain")


async def test_roles_and_other_peoples_jobs(server: HeappeServer, caller: Caller) -> None:
    job = await caller.create("mine")
    async with Caller(server, "reporter") as reporter:
        answer = await reporter.call(
            "POST", "JobManagement/CreateJob", {"JobSpecification": specification("a")}
        )
        assert answer.status == (401 if old(server) else 403)

    async with Caller(server, "other") as other:
        answer = await other.call("GET", "JobManagement/CurrentInfoForJob", SubmittedJobInfoId=job)
        assert answer.status == (401 if old(server) else 403)
        expected = "Session Code Authentication Problem" if old(server) else "Access Forbidden"
        assert answer.value["title"] == expected

    async with Caller(server, "nobody") as nobody:
        unknown = await nobody.call("GET", "JobManagement/CurrentInfoForJob", SubmittedJobInfoId=77)
        assert unknown.status == (404 if old(server) else 400), (
            "unknown ids are told before authentication"
        )


async def test_clusters_are_cached_for_hours(server: HeappeServer, caller: Caller) -> None:
    first = (await caller.call("GET", CLUSTERS, AccountingString="EXA-00-1")).value
    assert first[0]["NodeTypes"][0]["Projects"][0]["CommandTemplates"][0]["Id"] == 11
    server.switches.callback_cluster = True
    assert (await caller.call("GET", CLUSTERS, AccountingString="EXA-00-1")).value == first
    forced = await caller.call("GET", CLUSTERS, AccountingString="EXA-00-1", ForceRefresh="true")
    assert forced.value[0]["UseCallback"] is True
    server.switches.clusters_need_accounting = True
    assert (await caller.call("GET", CLUSTERS, ClusterName="bench")).value == []


async def test_health_says_nothing_about_the_cluster(server: HeappeServer, caller: Caller) -> None:
    server.switches.maintenance = True
    health = (await caller.call("GET", "Health")).value
    assert health["IsHealthy"] is True
    assert health["Version"].startswith("V6.3.2" if old(server) else "V6.5")
    usage = await caller.call(
        "GET", "ClusterInformation/CurrentClusterNodeUsage", ClusterNodeId=7, ProjectId=1
    )
    assert (usage.status, usage.value["title"]) == (502, "SSH Problem")


async def test_a_gateway_in_front(server: HeappeServer, caller: Caller) -> None:
    server.switches.gateway_html = 1
    answer = await caller.call("GET", CLUSTERS)
    assert (answer.status, answer.kind) == (502, "text/html")
    server.switches.rate_limited = 1
    assert (await caller.call("GET", CLUSTERS)).status == 429
    server.switches.empty_500 = 1
    answer = await caller.call("GET", CLUSTERS)
    assert (answer.status, answer.text) == (500, "")
