"""Bodies: the model is found wherever it is, and a body with no model, with two, or with one that
is not text is refused."""

from __future__ import annotations

import json

import pytest
from tests.conformance.planes.harness import MakePlane, head, post, serving_one
from tests.conformance.planes.replica import answer, chunk

MIB = 1 << 20
LATE = b'{"prompt":"%b","stream":false,"model":"tiny"}' % (b"x" * (4 * MIB))


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_model_behind_four_megabytes(plane: MakePlane, framing: str) -> None:
    pieces = [LATE[at : at + 65_536] for at in range(0, len(LATE), 65_536)]
    chunked = head("Transfer-Encoding: chunked") + b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    async with serving_one(plane, answer) as (served, replica):
        for _ in range(2):
            response = await served.ask(post(LATE) if framing == "length" else chunked)
            assert (response.status, response.body) == (200, b"{}")
        assert [request.body == LATE for request in replica.requests] == [True, True]


async def test_model_by_another_name(plane: MakePlane) -> None:
    names = {"default_model": "tiny", "model_aliases": {"gpt-4o-mini": "tiny"}}
    async with serving_one(plane, answer, **names) as (served, replica):
        client = await served.connect()
        for sent in (b'{"a":1,"model":"gpt-4o-mini"}', b'{"a":1}', b'{"a":1,"model":"tiny"}'):
            assert (await client.ask(post(sent))).status == 200

        got = [json.loads(request.body) for request in replica.requests]
        assert got == [{"a": 1, "model": "tiny"}] * 3


async def test_recording_of_60_megabytes(plane: MakePlane) -> None:
    named = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
    file = named % (b"file", b'; filename="a.wav"', bytes(range(256)) * (60 * MIB // 256))
    form = file + named % (b"model", b"", b"tiny") + b"--b--\r\n"
    sent = post(
        form,
        "Content-Type: multipart/form-data; boundary=b",
        "Connection: close",
        path="/v1/audio/transcriptions",
    )
    async with serving_one(plane, answer) as (served, replica):
        response = await served.ask(sent)
        assert (response.status, response.body) == (200, b"{}")
        assert [request.body == form for request in replica.requests] == [True]
        assert served.router.bodies.used == 0


@pytest.mark.parametrize("padding", [0, 4 * MIB], ids=["", "behind 4 MiB"])
@pytest.mark.parametrize(
    ("members", "status", "param"),
    [
        (b'"model":"tiny","model":"tiny"', 400, "model"),
        (b'"model":"other","m\\u006fdel":"tiny"', 400, "model"),
        (b'"model":"tiny","prompt":"","model":"other"', 400, "model"),
        (b'"model":7', 400, "model"),
        (b'"model":null', 400, "model"),
        (b'"model":["tiny"]', 400, "model"),
        (b'"model":{"model":"tiny"}', 400, "model"),
        (b'"model":""', 400, "model"),
        (b'"prompt":"\\"model\\":\\"tiny\\""', 400, "model"),
        (b'"model":"nope"', 404, "model"),
        (b'"model":"tiny"', 400, None),
    ],
    ids=[
        "twice",
        "escaped",
        "apart",
        "number",
        "null",
        "list",
        "object",
        "empty",
        "none",
        "unknown",
        "broken",
    ],
)
async def test_body_without_a_model_of_ours(
    plane: MakePlane, members: bytes, status: int, param: str | None, padding: int
) -> None:
    end = b"]}" if members == b'"model":"tiny"' else b"}"
    body = b'{"input":"%b",%b%b' % (b"x" * padding, members, end)
    async with serving_one(plane, answer) as (served, replica):
        client = await served.connect()
        response = await client.ask(post(body))
        error = json.loads(response.body)["error"]
        assert (response.status, error["param"]) == (status, param)

        # The connection stays open, or the response says that it does not.
        if not response.closes:
            assert (await client.ask(post())).status == 200

        assert all(request.body == b'{"model":"tiny"}' for request in replica.requests)
