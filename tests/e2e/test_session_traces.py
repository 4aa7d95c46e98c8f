"""Session traces: one tree from the client's request to the program, although manager and agent are
killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.traces import Collector, attributes

from .harness import Platform, kernels_below, until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
PROGRAM = {"runtime": "process", "engine": "custom", "resources": {"cpu": "0.1", "mem": "16MiB"}}
DELIVERED = {"POST /v1/sessions", "queue", "placement", "delivery", "kernel start", "session start"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture
def traced(platform: Platform, collector: Collector) -> Platform:
    platform.env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    return platform


async def create(platform: Platform, flags: str = "01", **fields: Any) -> dict[str, Any]:
    headers = platform.auth | {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}
    body = PROGRAM | {"type": "batch"} | fields
    async with (
        aiohttp.ClientSession(platform.url, headers=headers) as http,
        http.post("/v1/sessions", json=body) as response,
    ):
        made: dict[str, Any] = await response.json()
        assert response.status == 201, made
        return made


async def ended(platform: Platform, ref: str) -> Any:
    async with platform.client() as client:
        return await until(f"{ref} has ended", lambda: _ended(client, ref))


async def _ended(client: Any, ref: str) -> Any:
    found = await client.sessions.get(ref)
    return found if found.status in ("TERMINATED", "CANCELLED", "ERROR") else None


async def spans_of(collector: Collector, names: set[str]) -> dict[str, tuple[str, trace_pb2.Span]]:
    """Spans by name, with the component that sent each, once all of ``names`` have arrived."""

    async def arrived() -> dict[str, tuple[str, trace_pb2.Span]] | None:
        found = collector.spans()
        by_name = {span.name: (component, span) for component, span in found}
        assert len({span.span_id for _, span in found}) == len(found), "a span was sent twice"
        return by_name if names <= by_name.keys() else None

    found: dict[str, tuple[str, trace_pb2.Span]] = await until(f"{names} have arrived", arrived)
    return found


@pytest.mark.timeout(180)
async def test_one_tree_from_the_request_to_the_program(
    traced: Platform, collector: Collector
) -> None:
    platform = traced
    platform.start("manager")
    await platform.wait_until_ready()
    made = await create(
        platform, name="job", command=["/bin/sh", "-c", "echo $TRACEPARENT; sleep 0.5"]
    )
    async with platform.client() as client:
        await until("it waits for a reason", lambda: _has_hold(client))

    platform.kill("manager")  # its context is stored
    platform.start("manager")
    await platform.wait_until_ready()
    await until("the new leader has looked at it", lambda: _has_passed(platform))
    before = time.time()
    platform.start("agent")
    assert (await ended(platform, "job")).result == "SUCCESS"
    found = await spans_of(collector, DELIVERED | {"create", "readiness"})
    components = {name: component for name, (component, _) in found.items()}
    assert components == dict.fromkeys(DELIVERED - {"kernel start"}, "manager") | {
        name: "agent" for name in found.keys() - (DELIVERED - {"kernel start"})
    }
    assert {span.trace_id.hex() for _, span in found.values()} == {TRACE}
    request, session, kernel = (
        found[name][1] for name in ("POST /v1/sessions", "session start", "kernel start")
    )
    assert (request.parent_span_id.hex(), session.parent_span_id) == (PARENT, request.span_id)
    assert kernel.parent_span_id == session.span_id
    for name in ("queue", "placement", "delivery"):
        assert found[name][1].parent_span_id == session.span_id
    for name in ("create", "readiness"):
        assert found[name][1].parent_span_id == kernel.span_id

    told = attributes(session.attributes)
    assert (told["moorage.session.id"], told["moorage.session.status"]) == (made["id"], "RUNNING")
    assert session.events[0].name == "placed"
    queue = found["queue"][1]
    assert queue.start_time_unix_nano / 1e9 < before < queue.end_time_unix_nano / 1e9
    assert [event.name for event in queue.events], "the reasons for which it waited"
    log = await asyncio.to_thread(platform.run, "logs", "job")
    assert log.stdout.strip() == f"00-{TRACE}-{kernel.span_id.hex()}-01"


async def _has_passed(platform: Platform) -> bool:
    """Whether this manager process has finished a pass; only passes over waiting sessions are
    counted."""
    async with aiohttp.ClientSession(platform.url) as http, http.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return any(
        line.startswith("moorage_scheduler_pass_seconds_count ") and float(line.split()[1]) > 0
        for line in lines
    )


async def _has_hold(client: Any) -> bool:
    return (await client.sessions.get("job")).hold is not None


@pytest.mark.timeout(180)
async def test_sessions_that_are_not_sampled_and_that_do_not_start(
    traced: Platform, collector: Collector
) -> None:
    platform = traced
    platform.start("manager")
    platform.start("agent")
    await platform.wait_until_ready()
    program = ["/bin/sh", "-c", "echo $TRACEPARENT"]
    await create(platform, "00", name="unsampled", command=program)
    await ended(platform, "unsampled")
    log = await asyncio.to_thread(platform.run, "logs", "unsampled")
    assert log.stdout.startswith(f"00-{TRACE}-")
    assert log.stdout.endswith("-00\n")
    await create(platform, name="broken", command=["/does/not/exist"], retries=0)
    assert (await ended(platform, "broken")).status == "ERROR"
    found = await spans_of(collector, DELIVERED)
    for name in ("session start", "kernel start"):
        assert found[name][1].status.code == trace_pb2.Status.STATUS_CODE_ERROR
        assert found[name][1].status.message

    names = [
        attributes(span.attributes).get("moorage.session.name") for _, span in collector.spans()
    ]
    assert "unsampled" not in names


@pytest.mark.timeout(180)
async def test_an_agent_that_was_killed_goes_on_with_the_trace(
    traced: Platform, collector: Collector
) -> None:
    platform = traced
    platform.start("manager")
    platform.start("agent")
    await platform.wait_until_ready()
    serve = 'exec python3 -m http.server --bind 127.0.0.1 "$1"'
    waiting = f"until test -e go; do sleep 0.05; done; {serve}"
    command = ["/bin/sh", "-c", waiting, "web", "{port}"]
    probe = {"path": "/", "period_s": 0.1}
    await create(
        platform,
        type="interactive",
        name="web",
        command=command,
        probe=probe,
    )

    async with platform.client() as client:

        async def is_creating() -> bool:
            return bool((await client.sessions.get("web")).status == "CREATING")

        await until("the kernel was created", is_creating)
        platform.kill("agent")
        platform.start("agent")
        pid = next(iter(kernels_below(platform.home)))
        await asyncio.to_thread(Path(f"/proc/{pid}/cwd/go").touch)

        async def is_running() -> bool:
            return bool((await client.sessions.get("web")).status == "RUNNING")

        await until("it is ready", is_running)
        await client.sessions.stop("web")
        await ended(platform, "web")

    found = await spans_of(collector, DELIVERED | {"readiness"})
    kernel = found["kernel start"][1]
    readiness = found["readiness"][1]
    assert kernel.parent_span_id == found["session start"][1].span_id
    assert readiness.start_time_unix_nano > kernel.start_time_unix_nano
