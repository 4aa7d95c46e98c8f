"""Code execution through the API: who may run code, what is passed on, and how an agent's answer is
translated."""

from __future__ import annotations

import json

from moorage.common.model.commands import ExecEnd

from .served_api import MEMBER_KEY, Api

DEV = {"name": "dev", "type": "interactive"}
PAGE = {
    "run_id": "r1",
    "kernel": "python3",
    "status": "finished",
    "console": [],
    "next": 1,
    "exit_code": 0,
}


async def test_requests_are_passed_on_and_answers_checked(api: Api) -> None:
    await api.request("POST", "/v1/sessions", json=DEV)
    api.execs.answers = {
        "execute": json.dumps(PAGE).encode(),
        "read": b"not json",
        "input": ExecEnd(code="conflict", detail="it asks for none", next_step="wait"),
        "interrupt": ExecEnd(exit_code=127),
        "kernels": b'{"items": []}',
        "complete": b'{"matches": ["max"], "cursor_start": 0, "cursor_end": 2}',
    }
    base = "/v1/sessions/dev/executions"
    response, found = await api.request("POST", base, json={"code": "1", "timeout_s": 5})
    assert (response.status, found["status"]) == (200, "finished")
    name, hostname, asked = api.execs.asked[0]
    assert (name, hostname, asked["op"], asked["timeout_s"]) == ("dev", "main1", "execute", 5)

    for method, path, body, status in (
        ("GET", f"{base}/r1", None, 503),
        ("POST", f"{base}/r1/input", {"text": "x"}, 409),
        ("POST", f"{base}/r1/interrupt", None, 409),
        ("GET", "/v1/sessions/dev/code-kernels", None, 200),
        ("POST", f"{base}/completions", {"code": "ma"}, 200),
        ("POST", base, {"mode": "batch"}, 422),
        ("POST", base, {"code": "1", "build": "make"}, 422),
        ("POST", base, {"code": "1", "run_id": "../x"}, 422),
        ("POST", base, {"code": "1", "timeout_s": 0}, 422),
    ):
        response, _ = await api.request(method, path, **({"json": body} if body else {}))
        assert response.status == status, (method, path, body)

    assert api.execs.asked[-1][2]["cursor"] == 2


async def test_events_are_server_sent(api: Api) -> None:
    await api.request("POST", "/v1/sessions", json=DEV)
    lines = [{"seq": 3, "item": {"type": "stream", "name": "stdout", "text": "a\n"}}]
    lines += [
        {"seq": 4, "item": {"type": "end", "status": "finished", "exit_code": 0, "reason": ""}}
    ]
    api.execs.answers["follow"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    headers = {"Last-Event-ID": "2"}
    response, text = await api.request(
        "GET", "/v1/sessions/dev/executions/r1/events", headers=headers
    )
    assert response.headers["Content-Type"] == "text/event-stream"
    assert text.startswith('id: 3\nevent: stream\ndata: {"type": "stream"')
    assert text.count("\n\n") == 2
    assert api.execs.asked[0][2] == {"op": "follow", "run_id": "r1", "after": 2}


async def test_an_event_source_that_has_everything_is_told_to_stop(api: Api) -> None:
    """It reconnects after the end of each stream; only 204 ends that (HTML, section 9.2)."""
    await api.request("POST", "/v1/sessions", json=DEV)
    api.execs.answers["follow"] = b""
    path = "/v1/sessions/dev/executions/r1/events"
    for query, headers in (("", {"Last-Event-ID": "4"}), ("?after=4", {})):
        response, text = await api.request("GET", path + query, headers=headers)
        assert (response.status, text) == (204, "")


async def test_only_types_with_code_execution_and_their_owners(api: Api) -> None:
    await api.request("POST", "/v1/sessions", json=DEV)
    await api.request(
        "POST", "/v1/sessions", json={"name": "job", "type": "batch", "command": ["true"]}
    )
    response, problem = await api.request("POST", "/v1/sessions/job/executions", json={"code": "1"})
    assert (response.status, "interactive" in problem["next_step"]) == (409, True)
    response, _ = await api.request(
        "POST", "/v1/sessions/dev/executions", json={"code": "1"}, key=MEMBER_KEY
    )
    assert response.status in (403, 404)
    assert api.execs.asked == []
