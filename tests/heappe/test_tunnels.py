"""Tunnels of the test server, and the requests that go through them."""

from __future__ import annotations

import asyncio
import json
import socket

import aiohttp
import pytest

from moorage.common.aio.clock import ManualClock
from tests.heappe import HeappeServer, Script, Site, Timing
from tests.heappe.client import JSON, Caller

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}


def old(server: HeappeServer) -> bool:
    return server.profile == "6.3.2"


async def test_a_stream_passes_as_the_engine_wrote_it(caller: Caller) -> None:
    served = await caller.serve("a")
    answer = await served.post(CHAT | {"stream": True})
    assert (answer.status, answer.kind) == (200, "text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert "wörd2" in answer.text
    whole = await served.post(CHAT)
    assert whole.kind == "text/event-stream", "no content type of the engine's passes"
    assert whole.value["choices"][0]["message"]["content"] == " wörd0 wörd1 wörd2"


async def test_bodies_without_stream_are_encoded_twice(caller: Caller) -> None:
    served = await caller.serve("a")
    assert json.loads((await served.get("/v1/models")).value)["data"][0]["id"] == "tiny"
    assert (await served.get("/health")).text == '""'
    assert "choices" in json.loads((await served.post(CHAT, stream=False)).value)


async def test_an_engines_error_is_lost_in_a_stream_and_quoted_elsewhere(
    server: HeappeServer, caller: Caller
) -> None:
    served = await caller.serve("a")
    long = {"prompt": "too long"}
    assert (await served.post(long)).text == "data: Error: ResponseNotOk\n\n"
    answer = await served.post(long, stream=False)
    assert answer.status == (400 if old(server) else 502)
    assert answer.value["title"] == ("Invalid Request" if old(server) else "Connection Problem")
    assert "maximum context length" in answer.value["detail"]
    assert (await served.get("/nothing")).status == (400 if old(server) else 502)


async def test_headers_have_rules(server: HeappeServer, caller: Caller) -> None:
    served = await caller.serve("a")
    assert (await served.get("/health", headers=None)).status == (500 if old(server) else 400)
    assert (await served.get("/health", headers=[])).status == (404 if old(server) else 400)
    assert (await served.post(CHAT, headers=None)).status == (500 if old(server) else 400)
    long = await served.post(CHAT, headers=[{"Name": "a", "Value": "b" * 101}])
    assert long.status == 400
    assert "HttpHeaders[0].Value" in long.value["errors"]
    wide = await served.post(
        CHAT, headers=[{"Name": "content-type", "Value": "application/json; charset=utf-8"}]
    )
    assert wide.text.startswith("data: Error: The format of value")


async def test_failures_inside_200(server: HeappeServer, caller: Caller) -> None:
    served = await caller.serve("a")
    assert (
        await served.post(CHAT, NodePort=1)
    ).text == "data: Error: NoActiveConnectionForUser\n\n"
    assert (
        await served.post(CHAT, SubmittedTaskInfoId=5)
    ).text == "data: Error: NotExistingTaskInfo\n\n"
    assert (await served.post(CHAT, SessionCode="nonsense")).text == "data: Error: Unauthorized\n\n"
    invalid = await served.post(CHAT, HttpRequest="")
    assert (invalid.status, invalid.kind) == (200, "text/plain")
    assert invalid.text.startswith("Validation failed: ")
    code = server.sessions.login("agent", "secret-agent")
    server.sessions.expire("agent")
    assert (await served.post(CHAT, SessionCode=code)).text == "data: Error: Expired\n\n"
    server.switches.stream_error_after = 30
    answer = await served.post(CHAT | {"stream": True})
    assert answer.text.startswith("data: {")
    assert answer.text.endswith("data: Error: ResponseNotOk\n\n")
    server.switches.stream_error_after = -1
    server.switches.stream_cut_after = 30
    assert "DONE" not in (await served.post(CHAT | {"stream": True})).text


async def test_chunks_may_split_events_and_characters(server: HeappeServer, caller: Caller) -> None:
    served = await caller.serve("a")
    server.switches.stream_split = 1
    assert (await served.post(CHAT | {"stream": True})).text.endswith("data: [DONE]\n\n")


async def test_a_gateway_cuts_a_silent_stream(server: HeappeServer, caller: Caller) -> None:
    served = await caller.serve("a")
    server.switches.stream_idle_cut_s = 0.05
    with pytest.raises(aiohttp.ClientError):
        await served.post(CHAT | {"stream": True, "pause_ms": 5000})


async def test_the_timeout_of_calls_without_stream() -> None:
    impatient = HeappeServer(clock=ManualClock(), timing=Timing(http_timeout_s=0.1))
    async with impatient as server, Caller(server) as caller:
        served = await caller.serve("a")
        answer = await served.post({"prompt": "hang"}, stream=False)
        assert (answer.status, answer.value["detail"]) == (400, "''")


async def test_a_client_that_leaves_cancels_the_engine(
    server: HeappeServer, caller: Caller
) -> None:
    served = await caller.serve("a")
    task = asyncio.ensure_future(served.post(CHAT | {"stream": True, "pause_ms": 60_000}))
    engine = server.cluster.engine("a")
    async with asyncio.timeout(20):
        while not engine.active:
            await asyncio.sleep(0.01)

        task.cancel()
        while not engine.cancelled:
            await asyncio.sleep(0.01)


async def test_one_tunnel_per_task_and_user(server: HeappeServer, caller: Caller) -> None:
    served = await caller.serve("a")
    again = await caller.tunnel(served.task, "127.0.1.1", 9)
    assert again.value == served.method, "whatever port is asked for"
    async with Caller(server, "other") as other:
        theirs = await other.tunnel(served.task, "127.0.1.1", served.method["NodePort"])
        assert theirs.value["Port"] != served.method["Port"]

    assert (await caller.tunnel(served.task, "127.0.1.1", 22)).status == (
        404 if old(server) else 400
    )
    wrong = served.method | {"Port": 4999}
    assert (await caller.close(wrong)).status == (400 if old(server) else 502)
    assert (await caller.close(served.method)).text == '"CloseDataTransfer"'
    closed = await caller.close(served.method)
    assert (closed.status, closed.text) == (500, ""), "no tunnel is left"


async def test_closing_heals_a_dead_tunnel(server: HeappeServer, caller: Caller) -> None:
    served = await caller.serve("a")
    await server.advance(500)
    assert (await served.get("/health")).status == 200
    server.switches.tunnels_die = 1
    assert (await served.get("/health")).status == (400 if old(server) else 502)
    assert (await served.post(CHAT)).text.startswith("data: Error: Connection refused (localhost:")
    assert (
        await caller.tunnel(served.task, "127.0.1.1", served.method["NodePort"])
    ).value == served.method
    assert (await served.get("/health")).status == (400 if old(server) else 502), (
        "request alone heals nothing"
    )
    assert (await caller.close(served.method)).status == 200
    await caller.tunnel(served.task, "127.0.1.1", served.method["NodePort"])
    assert (await served.get("/health")).status == 200


async def test_a_quiet_tunnel_is_reaped_unless_addresses_are_asked(
    server: HeappeServer, caller: Caller
) -> None:
    served = await caller.serve("a", WalltimeLimit=7200)
    for _ in range(5):
        await server.advance(600)
        await caller.call("GET", "JobManagement/AllocatedNodesIPs", SubmittedTaskInfoId=served.task)

    assert (await served.get("/health")).status == 200
    for _ in range(5):
        assert (await served.get("/health")).status == 200, "requests do not count as use"
        await server.advance(400)

    assert (await served.get("/health")).status != 200


async def test_a_tunnel_that_another_user_closed_never_heals(
    server: HeappeServer, caller: Caller
) -> None:
    served = await caller.serve("a")
    async with Caller(server, "other") as other:
        theirs = (await other.tunnel(served.task, "127.0.1.1", served.method["NodePort"])).value
        assert (await other.close(theirs)).status == 200

    for _ in range(2):
        assert (await served.get("/health")).status != 200
        answer = await caller.close(served.method)
        assert (answer.status, answer.value["title"]) == (502, "Tunnel Exception")
        again = await caller.tunnel(served.task, "127.0.1.1", served.method["NodePort"])
        assert again.value == served.method


async def test_the_switch_for_another_user_does_the_same(
    server: HeappeServer, caller: Caller
) -> None:
    served = await caller.serve("a")
    server.switches.other_user_closes = 1
    assert (await served.get("/health")).status != 200
    assert (await caller.close(served.method)).status == 502


async def test_ports_run_out() -> None:
    small = HeappeServer(clock=ManualClock(), site=Site(ports=(4000, 4003)))
    async with small as server, Caller(server) as caller:
        await caller.serve("a")
        server.switches.ports_taken = 1
        await caller.serve("b")
        with pytest.raises(AssertionError, match="no free local port"):
            await caller.serve("c")


async def test_a_restart_loses_tunnels_and_keeps_jobs(server: HeappeServer, caller: Caller) -> None:
    served = await caller.serve("a")
    await server.restart()
    assert (await served.post(CHAT)).text == "data: Error: NoActiveConnectionForUser\n\n"
    assert (await caller.close(served.method)).text == ""
    await caller.tunnel(served.task, "127.0.1.1", served.method["NodePort"])
    assert (await served.get("/health")).status == 200


async def test_an_ended_job_keeps_its_tunnel_until_the_next_poll(
    server: HeappeServer, caller: Caller
) -> None:
    served = await caller.serve("a")
    await caller.cancel(served.job)
    assert (
        await served.post(CHAT)
    ).text == "data: Error: An error occurred while sending the request.\n\n"
    await server.advance(30)
    assert (await served.post(CHAT)).text == "data: Error: NoActiveConnectionForUser\n\n"


async def test_a_tunnel_says_nothing_about_the_engine(server: HeappeServer, caller: Caller) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.1.1", 0))
        port = probe.getsockname()[1]

    server.cluster.script = lambda job: Script(load_s=120, port=port)
    job = await caller.start("a")
    await server.advance(31)
    task = (await caller.info(job))["Tasks"][0]["Id"]
    assert (await caller.tunnel(task, "127.0.1.1", port)).status == 200
    body = {"SubmittedTaskInfoId": task, "NodeIPAddress": "127.0.1.1", "NodePort": port, "HttpHeaders": JSON,
            "HttpRequest": "/health"}  # fmt: skip
    assert (
        (await caller.call("POST", "DataTransfer/HttpGetToJobNode", body))
        .value["detail"]
        .startswith("''")
    )
    await server.advance(90)
    assert (await caller.call("POST", "DataTransfer/HttpGetToJobNode", body)).status == 200


async def test_clusters_without_tunnels(server: HeappeServer, caller: Caller) -> None:
    server.switches.linux_local = True
    with pytest.raises(AssertionError, match=r"Problem|Configuration"):
        await caller.serve("a")


async def test_the_log_of_632_holds_prompts(server: HeappeServer, caller: Caller) -> None:
    served = await caller.serve("a")
    await served.post(CHAT)
    assert any("hello" in line for line in server.logged) is old(server)


async def test_events_are_replayed_in_65(server: HeappeServer, caller: Caller) -> None:
    await caller.serve("a")
    async with aiohttp.ClientSession(headers={"X-API-Key": "agent:secret-agent"}) as session:
        url = f"{server.url}/heappe/Events"
        if old(server):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(url)
            return

        async with session.ws_connect(url) as socket:
            events = [json.loads((await socket.receive(timeout=20)).data) for _ in range(2)]
            assert [event["data"]["state"] for event in events] == ["Running", "Running"]
            assert events[0]["id"] != events[1]["id"]


async def test_a_program_runs_in_the_directory_of_its_job(
    server: HeappeServer, caller: Caller
) -> None:
    server.cluster.script = lambda job: Script(engine="program")
    job = await caller.create("a")
    task = server.database.jobs[job].tasks[0]
    launcher = task.spec.directory / "go.sh"
    launcher.write_text("echo args: $1\nsleep 600 &\nwait\n")
    task.spec = type(task.spec)(
        **{
            name: getattr(task.spec, name)
            for name in task.spec.__dataclass_fields__
            if name != "command"
        },
        command="bash go.sh",
    )
    await caller.submit(job)

    async with asyncio.timeout(20):
        while (
            not (found := (await caller.part(job, task.id, kind=3)).value)
            or not found[0]["Content"]
        ):
            await asyncio.sleep(0.01)

    assert found[0]["Content"] == "args: e30\n"
    assert (await caller.cancel(job)).status == 200
    assert server.running() == []
