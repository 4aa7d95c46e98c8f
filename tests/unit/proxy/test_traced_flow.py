"""Request traces: the same commands as without tracing, and one tree of spans, no matter what
happens."""

from __future__ import annotations

import pytest
from flow_playbook import BODY, CHAT, Playbook, describe
from multidict import CIMultiDict
from test_flow import PLAYBOOKS, assert_settled, play
from tests.traces import Kept

from moorage.common.telemetry.spans import Sampler, Span
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.traced_flow import TracedFlow, replaced_headers

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
PARENT = 0xB7AD6B7169203331
HEADER = f"00-{TRACE:032x}-{PARENT:016x}-"


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_every_playbook_is_one_tree(name: str) -> None:
    replicas, steps, recorded = PLAYBOOKS[name]
    kept = Kept()
    playbook = Playbook(replicas, tracer=kept)
    play(playbook, steps)
    assert_settled(playbook)
    (root,) = [span for span in kept.spans if span.kind == "SERVER"]
    assert root is kept.spans[-1]
    assert root.attributes["http.response.status_code"] == int(recorded.split()[1])
    assert root.parent_id == 0
    children = kept.spans[:-1]
    assert {span.parent_id for span in children} <= {root.context.span_id}
    assert {span.context.trace_id for span in kept.spans} == {root.context.trace_id}
    assert len({span.context.span_id for span in kept.spans}) == len(kept.spans)
    assert all(root.start <= span.start <= span.end <= root.end for span in children)
    sent = sum(step.count("> send") for step in steps)
    assert [span.kind for span in children].count("CLIENT") == sent
    assert [span.name for span in children].count("admission") == 1
    assert ("queue" in [span.name for span in children]) == any("> hold" in step for step in steps)


def shown(spans: list[Span]) -> list[str]:
    return [f"{one.name} {one.start:g}-{one.end:g} {one.error}".rstrip() for one in spans]


def test_attempts_and_waits() -> None:
    kept = Kept()
    playbook = Playbook("kept a", tracer=kept)
    steps = ["request > read", "after 1", "body > send a", "after 2", "refused", "after 3"]
    play(
        playbook,
        [*steps, "routes kept b > send b", "after 1", "response 200 > start", "after 4", "end"],
    )
    assert shown(kept.spans) == [
        "admission 100-101",
        "replica 101-103 connect",
        "queue 103-106",
        "replica 106-111",
        "POST /v1/chat/completions 100-111",
    ]
    first = kept.spans[1]
    second = kept.spans[3]
    assert (first.attributes["moorage.kernel.id"], first.attributes["error.type"]) == (
        "a",
        "connect",
    )
    assert second.attributes["http.request.resend_count"] == 1
    assert (second.attributes["http.response.status_code"], list(second.events)) == (
        200,
        [("first_byte", 107.0)],
    )


@pytest.mark.parametrize(
    ("sampler", "header", "accepts", "follows", "records", "flags"),
    [
        ("parentbased_always_on", None, True, False, True, "01"),
        ("parentbased_always_on", HEADER + "01", True, True, True, "01"),
        ("parentbased_always_on", HEADER + "00", True, True, False, "00"),
        ("always_on", HEADER + "00", True, True, True, "01"),
        ("parentbased_always_off", None, True, False, False, "00"),
        ("parentbased_always_on", HEADER + "01", False, False, True, "01"),
        ("parentbased_always_on", "rubbish", True, False, True, "01"),
    ],
)
def test_context_of_the_client(
    sampler: Sampler, header: str | None, accepts: bool, follows: bool, records: bool, flags: str
) -> None:
    kept = Kept(sampler, accepts_parents=accepts)
    flow = Playbook("a", tracer=kept).flow
    fields = {"Authorization": "Bearer key"} | ({} if header is None else {"Traceparent": header})
    flow.head("POST", CHAT, CIMultiDict(fields), len(BODY), now=1, unix_now=1)
    assert describe(flow.body(BODY, 1)) == "send a"
    version, trace, span, given = flow.traceparent.split("-")
    assert (version, given) == ("00", flags)
    assert (int(trace, 16) == TRACE) == follows
    flow.upstream_head(200, "application/json", 2)
    flow.upstream_end(3)
    assert bool(kept.spans) == records

    if records:
        (replica,) = [one for one in kept.spans if one.kind == "CLIENT"]
        assert int(span, 16) == replica.context.span_id, "the engine's spans are below the attempt"
        assert kept.spans[-1].parent_id == (PARENT if follows else 0)

    assert replaced_headers(flow) == ({"traceparent"} if follows else {"traceparent", "tracestate"})


def test_providers_learn_nothing_of_a_trace() -> None:
    playbook = Playbook("loading | provider", tracer=Kept())
    play(playbook, ["request > read", "body > hold 5", "after 5", "timer > send outside"])
    assert playbook.flow.traceparent == ""


def test_no_trace_while_off() -> None:
    flow = Playbook("a").flow
    assert not isinstance(flow, TracedFlow)
    assert type(flow) is RequestFlow
    assert (flow.traceparent, replaced_headers(flow)) == ("", frozenset())
