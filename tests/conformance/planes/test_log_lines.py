"""Log lines about a request: ours and the libraries' have its ids, and lines about later requests
have theirs."""

from __future__ import annotations

import logging

from tests.conformance.planes.harness import MakePlane, post, serving_one
from tests.conformance.planes.replica import OK, Visit
from tests.json_lines import json_lines
from tests.traces import Kept

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Logging(Kept):
    """A library that logs within a request."""

    def new_span_id(self) -> int:
        logging.getLogger("library").warning("within")
        return super().new_span_id()


async def lost(visit: Visit) -> None:
    """Closes the first connection, and answers on the next."""
    while True:
        await visit.request()
        if visit.number == 0:
            return
        await visit.send(OK)


async def test_lines_have_the_ids_of_the_request(plane: MakePlane) -> None:
    with json_lines("proxy") as lines:
        async with serving_one(plane, lost, tracer=Logging()) as (served, _):
            client = await served.connect()
            parent = f"Traceparent: 00-{TRACE}-b7ad6b7169203331-01"
            for _ in range(2):  # on one connection
                assert (await client.ask(post(b'{"model":"tiny"}', parent))).status == 200

    (failed,) = lines.of("moorage.proxy")
    assert (failed["event"], failed["component"], failed["trace_id"]) == (
        "replica failed",
        "proxy",
        TRACE,
    )
    assert (failed["endpoint"], failed["session_id"], failed["kernel_id"]) == (
        "tiny",
        "session-k",
        "k",
    )
    within = [line for line in lines.of("library") if line.get("trace_id")]
    assert {line["trace_id"] for line in within} == {TRACE}
    assert {line["endpoint"] for line in within if line.get("endpoint")} == {"tiny"}
    assert failed["request_id"] in {line["request_id"] for line in within}
    assert len({line["request_id"] for line in within}) == 2


async def test_lines_outside_of_requests_have_none(plane: MakePlane) -> None:
    with json_lines("proxy") as lines:
        async with serving_one(plane, lost) as (served, _):
            client = await served.connect()
            assert (await client.ask(post(b'{"model":"tiny"}'))).status == 200
            logging.getLogger("library").warning("outside")
    (outside,) = lines.of("library")
    assert not outside.keys() & {"trace_id", "session_id", "kernel_id", "endpoint", "request_id"}
