"""Waiting in the SDK: through the event stream, and by polling if there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise

import pytest
from aiohttp import web
from fake_manager import KEY, FakeManager
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import Status
from moorage.common.views.resources import Problem
from moorage.sdk import ApiError, Client
from moorage.sdk.event_stream import EventParser, ServerEvent, pause_s

TINY = EndpointSpec.model_validate(
    {"name": "tiny", "engine": "custom", "command": ["x"], "probe": {"path": "/"}}
)
JOB = SessionSpec(name="job", type="batch", command=["true"])
EVENTS = "GET /v1/events"
STREAM = (
    b"retry: 1000\nevent: ready\ndata: {}\n\n"
    b"id: a-1\nevent: session\ndata: {}\n\n: \nid: a-2\n\nevent: reset\ndata: 1\ndata: 2\n\n"
)
PARSED = [
    ServerEvent("ready", "{}", ""),
    ServerEvent("session", "{}", "a-1"),
    ServerEvent("", "", "a-2"),
    ServerEvent("reset", "1\n2", "a-2"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=5))
def test_events_are_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    parser = EventParser()
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in pairwise(edges)]
    assert [event for piece in pieces for event in parser.feed(piece)] == PARSED


def test_reads_without_an_event_become_rare() -> None:
    assert [pause_s(quiet, True) for quiet in range(6)] == [1, 2, 4, 8, 15, 15]
    assert {pause_s(quiet, False) for quiet in range(6)} == {0.5}


async def test_a_wait_reads_once_per_event(manager: FakeManager) -> None:
    async with Client(manager.url, KEY) as client, asyncio.timeout(20):
        manager.next_session(
            script=[Status.SCHEDULED, Status.PREPARING, Status.CREATING, Status.RUNNING]
        )
        made = await client.sessions.create(JOB)
        running = await client.sessions.wait(made.id, lambda view: view.status is Status.RUNNING)

    assert running.status is Status.RUNNING
    reads = manager.requests.count(f"GET /v1/sessions/{made.id}")
    assert reads <= 6  # one for each status, one before the stream and one after it had started
    assert [one for one in manager.requests if one.startswith(EVENTS)] == [
        f"{EVENTS}?kinds=session&about={made.id}"
    ]


async def test_an_endpoint_is_awaited_by_the_events_of_its_replicas(manager: FakeManager) -> None:
    async with Client(manager.url, KEY) as client, asyncio.timeout(20):
        made = await client.endpoints.create(TINY)
        ready = await client.endpoints.wait("tiny", lambda view: view.ready == 1)
    assert ready.ready == 1
    assert f"{EVENTS}?kinds=endpoint,session&about={made.id}" in manager.requests


@pytest.mark.parametrize("status", [400, 404, 503])
async def test_a_wait_polls_where_the_stream_is_refused(manager: FakeManager, status: int) -> None:
    manager.can(
        "GET", "/v1/events", status, Problem(title="no", status=status, code="no", detail="no")
    )
    async with Client(manager.url, KEY) as client, asyncio.timeout(20):
        manager.next_session(script=[Status.SCHEDULED, Status.RUNNING])
        made = await client.sessions.create(JOB)
        await client.sessions.wait(made.name, lambda view: view.status is Status.RUNNING)


async def test_a_wait_ends_after_its_timeout_and_with_the_errors_of_a_read(
    manager: FakeManager,
) -> None:
    manager.next_session(script=[])
    async with Client(manager.url, KEY) as client, asyncio.timeout(20):
        made = await client.sessions.create(JOB)
        with pytest.raises(TimeoutError):
            await client.sessions.wait(made.id, lambda _: False, timeout_s=0.05)
        with pytest.raises(ApiError):
            await client.sessions.wait("unknown", lambda _: True)


class Streams:
    """A server of event streams. Each connection gets the next text, and is closed after that text
    unless it is the last. ``resumed_after``: the ``Last-Event-ID`` of each connection."""

    def __init__(self, *texts: bytes) -> None:
        self._texts = list(texts)
        self.resumed_after: list[str] = []

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.resumed_after.append(request.headers.get("Last-Event-ID", ""))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(self._texts.pop(0))
        while not self._texts:
            await asyncio.sleep(60)
        return response

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        app = web.Application()
        app.add_routes([web.get("/v1/events", self._serve)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()

        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            async with Client(f"http://127.0.0.1:{runner.addresses[0][1]}", timeout=10) as client:
                yield client
        finally:
            await runner.cleanup()


def ready(resumed: bool) -> bytes:
    data = f'{{"now": "2026-01-01T00:00:00Z", "version": "1", "resumed": {str(resumed).lower()}}}'
    return f"event: ready\ndata: {data}\n\n".encode()


async def test_a_stream_that_breaks_goes_on_after_its_last_event() -> None:
    event = b"id: a-%d\nevent: session\ndata: {}\n\n"
    streams = Streams(ready(False) + event % 7, ready(True), ready(True) + event % 8)
    async with (
        streams.client() as client,
        asyncio.timeout(20),
        aclosing(client.events.changes("session")) as changes,
    ):
        while len(streams.resumed_after) < 3:
            await anext(changes)

    assert streams.resumed_after == ["", "a-7", "a-7"]


async def test_what_changes_is_announced_without_polling() -> None:
    streams = Streams(ready(False) + b"event: reset\ndata: {}\n\n")
    async with (
        streams.client() as client,
        asyncio.timeout(20),
        aclosing(client.events.changes()) as changes,
    ):
        for _ in range(2):  # at once, and when the stream has started
            await anext(changes)


async def test_changes_may_be_anywhere_while_there_is_no_manager() -> None:
    async with (
        Client("http://127.0.0.1:1") as client,
        asyncio.timeout(20),
        aclosing(client.events.changes()) as changes,
    ):
        for _ in range(3):
            await anext(changes)
