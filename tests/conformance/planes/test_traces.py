"""Traces: replicas continue the client's trace in every data plane, and a collector receives one
tree."""

from __future__ import annotations

import pytest
from tests.conformance.planes.harness import MakePlane, post, serving_one
from tests.conformance.planes.replica import OK, Visit, answer
from tests.traces import Collector, Kept, attributes

from moorage.common.aio.clock import SystemClock
from moorage.common.config.telemetry_settings import TelemetrySettings
from moorage.common.telemetry.spans import parse_traceparent
from moorage.server.tracing import tracer_for

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
HEADER = f"Traceparent: 00-{TRACE}-{PARENT}-01"


async def lost(visit: Visit) -> None:
    """Closes the first connection, and answers on the next."""
    while True:
        await visit.request()
        if visit.number == 0:
            return
        await visit.send(OK)


async def test_one_tree_from_the_client_to_the_replica(plane: MakePlane) -> None:
    with Collector() as collector:
        settings = TelemetrySettings(endpoint=collector.url, headers="tenant=a")
        tracer = tracer_for(settings, "proxy", SystemClock())
        assert tracer is not None
        async with tracer, serving_one(plane, lost, tracer=tracer) as (served, started):
            request = post(b'{"model":"tiny"}', HEADER, "tracestate: vendor=1")
            assert (await served.ask(request)).status == 200

        assert [one["tenant"] for one in collector.headers] == ["a"] * len(collector.headers)
        spans = [span for _, span in collector.spans()]
        components = {component for component, _ in collector.spans()}

    assert components == {"proxy"}
    (root,) = [span for span in spans if span.kind == span.SPAN_KIND_SERVER]
    assert (root.name, root.parent_span_id.hex()) == ("POST /v1/completions", PARENT)
    attempts = [span for span in spans if span.kind == span.SPAN_KIND_CLIENT]
    attempts.sort(key=lambda span: span.start_time_unix_nano)
    assert [attributes(one.attributes).get("error.type") for one in attempts] == [
        "disconnect",
        None,
    ]
    assert {one.parent_span_id for one in attempts} == {root.span_id}
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    told = [one.all("traceparent") for one in started.requests]
    assert told == [[f"00-{TRACE}-{one.span_id.hex()}-01"] for one in attempts]
    assert [one.all("tracestate") for one in started.requests] == [["vendor=1"]] * 2


async def test_equal_heads_are_traces_of_their_own(plane: MakePlane) -> None:
    kept = Kept()
    async with serving_one(plane, answer, tracer=kept) as (served, started):
        client = await served.connect()
        for _ in range(3):
            assert (await client.ask(post())).status == 200

        headers = [one.all("traceparent") for one in started.requests]

    told = [parse_traceparent(one) for (one,) in headers]
    attempts = [span.context for span in kept.spans if span.kind == "CLIENT"]
    assert told == attempts
    assert len({one.trace_id for one in attempts}) == 3


@pytest.mark.parametrize("traced", [False, True])
async def test_header_of_a_client_that_is_not_trusted(plane: MakePlane, traced: bool) -> None:
    kept = Kept(accepts_parents=False) if traced else None
    async with serving_one(plane, answer, tracer=kept) as (served, started):
        assert (
            await served.ask(post(b'{"model":"tiny"}', HEADER, "tracestate: a=1"))
        ).status == 200
        (request,) = started.requests
    (told,) = request.all("traceparent")
    assert (TRACE in told) != traced, "without traces, what the client sends is passed on"
    assert request.all("tracestate") == ([] if traced else ["a=1"])


async def test_a_collector_that_is_not_there_costs_no_request(
    plane: MakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.common.telemetry.tracer.CLOSE_S", 0.05)
    settings = TelemetrySettings(endpoint="http://127.0.0.1:9")
    tracer = tracer_for(settings, "proxy", SystemClock())
    assert tracer is not None

    async with tracer, serving_one(plane, answer, tracer=tracer) as (served, _):
        client = await served.connect()
        for _ in range(50):
            assert (await client.ask(post())).status == 200
