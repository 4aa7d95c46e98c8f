"""The HEAppE client against handwritten answers: authentication, time limits, and calls that are
never repeated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault
from moorage.agent.runtimes.heappe.transport import Account
from moorage.common.aio.clock import ManualClock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_EXPIRED = "Session code 'x' already expired at 'y'."


def problem(status: int, title: str, detail: str = "") -> web.Response:
    return web.json_response({"title": title, "status": status, "detail": detail}, status=status)


@asynccontextmanager
async def client(
    handler: Handler,
    auth: str = "api-key",
    clock: ManualClock | None = None,
    secret_file: Path | None = None,
) -> AsyncIterator[HeappeClient]:
    server = web.Server(handler)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    account = Account(
        f"http://127.0.0.1:{port}/", "agent", secret="secret", auth=auth, secret_file=secret_file
    )
    found = HeappeClient(account, clock or ManualClock())
    try:
        yield found
    finally:
        await found.close()
        await runner.cleanup()


async def test_api_key_compact_body_and_language() -> None:
    seen: list[tuple[str, str, bytes, str]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(
            (
                request.path,
                request.headers["X-API-Key"],
                await request.read(),
                request.headers["Accept-Language"],
            )
        )
        return web.json_response(
            {"Id": 1234567, "State": 4, "Tasks": [{"Id": 7, "State": 4, "Reason": "Priority"}]}
        )

    async with client(handle) as heappe:
        job = await heappe.submit_job(1234567, 2)

    assert seen == [
        ("/heappe/JobManagement/SubmitJob", "agent:secret", b'{"CreatedJobInfoId":1234567}', "en")
    ]
    assert (job.state, job.task.id, job.task.reason) == (wire.JobState.QUEUED, 7, "Priority")


async def test_a_get_has_no_body() -> None:
    async def handle(request: web.Request) -> web.Response:
        assert not request.can_read_body
        assert request.query["AccountingString"] == "EXA-1"
        return web.json_response([])

    async with client(handle) as heappe:
        assert await heappe.node_types("EXA-1") == []


async def test_a_session_is_renewed_once_for_all_callers() -> None:
    logins = 0
    expired = {"old"}

    async def handle(request: web.Request) -> web.Response:
        nonlocal logins
        if request.path.endswith("AuthenticateUserPassword"):
            logins += 1
            await asyncio.sleep(0.02)
            return web.json_response("old" if logins == 1 else "new")
        if request.query["SessionCode"] in expired:
            return problem(401, "Session Code Authentication Problem", _EXPIRED)
        return web.json_response([])

    async with client(handle, "session") as heappe:
        await asyncio.gather(*(heappe.jobs([wire.JobState.RUNNING]) for _ in range(20)))
        await heappe.jobs([wire.JobState.RUNNING])

    assert logins == 2


@pytest.mark.parametrize(
    ("status", "title"),
    [(401, "Session Code Authentication Problem"), (401, "Unauthorized Access")],
)
async def test_the_job_of_another_user_makes_no_login_loop(status: int, title: str) -> None:
    calls: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        calls.append(request.path.rpartition("/")[2])
        if request.path.endswith("AuthenticateUserPassword"):
            return web.json_response(
                "code"
            )  # the session is still alive: the server returns it again
        return problem(status, title, "not yours")

    async with client(handle, "session") as heappe:
        with pytest.raises(HeappeFailed) as refused:
            await heappe.job(9)

    assert refused.value.problem is SiteFault.FORBIDDEN
    assert calls.count("CurrentInfoForJob") == 1
    assert calls.count("AuthenticateUserPassword") <= 2


async def test_a_wrong_password_is_not_tried_again_and_again() -> None:
    logins = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal logins
        logins += 1
        return problem(502, "External Service Error", "wrong")

    async with client(handle, "session") as heappe:
        for _ in range(5):
            with pytest.raises(HeappeFailed) as refused:
                await heappe.projects()
            assert refused.value.problem is SiteFault.CREDENTIALS

    assert logins == 1


@pytest.mark.parametrize("auth", ["api-key", "bearer"])
async def test_refused_credentials_in_a_header(auth: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        if auth == "bearer":
            assert request.headers["Authorization"] == "Bearer secret"
            return web.Response(status=401, text="Unauthorized")
        return problem(401, "Unauthorized Access", "Unauthorized")

    async with client(handle, auth) as heappe:
        with pytest.raises(HeappeFailed) as refused:
            await heappe.projects()

    assert refused.value.problem is SiteFault.CREDENTIALS


@pytest.mark.parametrize("auth", ["api-key", "bearer", "session"])
async def test_refused_credentials_are_sent_three_times_in_ten_minutes(auth: str) -> None:
    calls = 0
    is_known = False

    async def handle(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        if is_known:
            return web.json_response("code" if "Authenticate" in request.path else [])
        return problem(401, "Authentication Failed", "wrong")

    clock = ManualClock()
    async with client(handle, auth, clock) as heappe:
        for _ in range(40):
            with pytest.raises(HeappeFailed) as refused:
                await heappe.projects()

            assert (refused.value.problem, "wrong" in str(refused.value)) == (
                SiteFault.CREDENTIALS,
                True,
            )
            clock.advance(15)

        assert calls == 3
        is_known = True
        clock.advance(1200)
        await heappe.projects()
        is_known = False
        calls = 0
        with pytest.raises(HeappeFailed):
            await heappe.job(1)

        clock.advance(40)
        if auth != "session":
            with pytest.raises(HeappeFailed):
                await heappe.job(1)
            assert calls == 2, "from the beginning"


@pytest.mark.parametrize("auth", ["api-key", "bearer", "session"])
async def test_new_credentials_are_taken_from_their_file_at_once(auth: str, tmp_path: Path) -> None:
    """Refused credentials are not sent again until then."""
    known = "secret"
    sent = list[str]()

    async def handle(request: web.Request) -> web.Response:
        secret = (
            str(dict(request.headers)) + (await request.read()).decode() + str(dict(request.query))
        )
        sent.append(secret)
        if "Authenticate" in request.path:
            return (
                web.json_response(f"code-{known}")
                if known in secret
                else problem(401, "Authentication Failed")
            )

        return (
            web.json_response([])
            if known in secret
            else problem(401, "Unauthorized Access", "Unauthorized")
        )

    file = tmp_path / "secret"
    file.write_text("secret\n")
    async with client(handle, auth, secret_file=file) as heappe:
        await heappe.projects()
        known = "another"
        for _ in range(5):
            with pytest.raises(HeappeFailed):
                await heappe.projects()

        refused = len(sent)
        file.write_text("another\n")
        await heappe.projects()
        assert "another" in sent[-1]
        known = "third"
        file.write_text("third\n")
        await heappe.projects()  # the old one is refused, and the new one is sent

    assert refused <= 4


@pytest.mark.parametrize("call", ["submit", "cancel", "delete", "create"])
async def test_what_may_have_taken_effect_is_never_repeated(call: str) -> None:
    attempts = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal attempts
        attempts += 1
        await request.read()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with client(handle) as heappe:
        todo = {
            "submit": lambda: heappe.submit_job(1, 2),
            "cancel": lambda: heappe.cancel_job(1),
            "delete": lambda: heappe.delete_job(1),
            "create": lambda: heappe.create_job({"ClusterId": 2}),
        }
        with pytest.raises(HeappeFailed) as failed:
            await todo[call]()

    assert attempts == 1
    assert failed.value.in_doubt


async def test_a_body_beyond_the_limit_is_not_sent() -> None:
    async def handle(request: web.Request) -> web.Response:
        raise AssertionError("sent")

    tunnel = wire.Tunnel(1, 4000, "192.0.2.1", 8000)
    async with client(handle) as heappe:
        with pytest.raises(HeappeFailed) as refused:
            async with heappe.stream(tunnel, "/v1", {}, "x" * 5_000_000):
                pass

    assert refused.value.problem is SiteFault.TOO_LARGE
    assert "5000000 are allowed" in refused.value.detail


async def test_an_open_circuit_makes_no_calls_to_its_cluster() -> None:
    submits = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal submits
        submits += request.method == "PUT"
        return problem(502, "SSH Problem") if request.method == "PUT" else web.json_response([])

    async with client(handle) as heappe:
        for _ in range(10):
            with pytest.raises(HeappeFailed):
                await heappe.submit_job(1, 2)

        assert submits == 3
        with pytest.raises(HeappeFailed):
            await heappe.submit_job(1, 3)  # another cluster

        assert submits == 4
        assert await heappe.jobs([wire.JobState.RUNNING]) == []


async def test_a_cancelled_job_that_has_ended_is_no_error() -> None:
    async def handle(request: web.Request) -> web.Response:
        return problem(
            400, "Invalid Request", "Cannot cancel job '1', this job is in state 'Finished'."
        )

    async with client(handle) as heappe:
        await heappe.cancel_job(1)


async def test_a_stream_is_passed_on_as_it_comes() -> None:
    first = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        assert (body["HttpRequest"], body["NodePort"], body["HttpPayload"]) == ("/v1/x", 8000, "{}")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await first.wait()
        await response.write(b"data: 2\n\n")
        return response

    tunnel = wire.Tunnel(1, 4000, "192.0.2.1", 8000)
    async with client(handle) as heappe, heappe.stream(tunnel, "/v1/x", {}, "{}") as content:
        assert await content.readany() == b"data: 1\n\n"
        first.set()
        assert await content.readany() == b"data: 2\n\n"


async def test_an_answer_that_is_no_json() -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text="<html>maintenance</html>", content_type="text/html")

    async with client(handle) as heappe:
        with pytest.raises(HeappeFailed) as failed:
            await heappe.projects()
    assert failed.value.problem is SiteFault.GATEWAY


async def test_a_server_that_is_not_there() -> None:
    heappe = HeappeClient(Account("http://127.0.0.1:9", "a", "b"), ManualClock())
    with pytest.raises(HeappeFailed) as failed:
        await heappe.health()
    assert failed.value.problem is SiteFault.UNREACHABLE
    await heappe.close()
