"""Request states: the flow and its table agree, in any order of events."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from flow_playbook import Counting, Playbook
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from moorage.proxy.core.admission import BodyRequired
from moorage.proxy.core.commands import WaitForReplica
from moorage.proxy.core.error_response import invalid_key
from moorage.proxy.core.flow_states import (
    ENDED,
    HELD,
    NAMES,
    READING,
    SENT,
    STREAMING,
    TRANSITIONS,
    FlowState,
    IllegalEvent,
)
from moorage.proxy.core.retry import Failure

ROOT = Path(__file__).parents[3]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
FLOW = ROOT / "src/moorage/proxy/core/flow.py"
# The events that bring a request into each state.
WAYS: dict[FlowState, tuple[str, tuple[str, ...]]] = {
    READING: ("a", ("request",)),
    HELD: ("loading", ("request", "body")),
    SENT: ("a", ("request", "body")),
    STREAMING: ("a", ("request", "body", "response 200")),
    ENDED: ("a", ("request", "leaves")),
}
ROWS = {transition.event: transition for transition in TRANSITIONS}


def playbook_in(state: FlowState) -> Playbook:
    replicas, words = WAYS[state]
    playbook = Playbook(replicas)
    for word in words:
        playbook.event(word)
    assert playbook.flow.state == state
    return playbook


def call(playbook: Playbook, event: str) -> object:
    """Report an event to the flow in any state."""
    flow = playbook.flow
    now = playbook.now
    match event:
        case "head":
            fields = CIMultiDict({"Authorization": "Bearer key"})
            return flow.head("POST", "/v1/chat/completions", fields, 16, now=now, unix_now=0.0)
        case "head_again":
            admitted = flow.admitted
            assert isinstance(admitted, BodyRequired)
            return flow.head_again(admitted, now, 0.0)
        case "body":
            return flow.body(b'{"model":"tiny"}', now)
        case "refuse":
            return flow.refuse(invalid_key(given=True), now)
        case "upstream_failed":
            return flow.upstream_failed(Failure.CONNECT, now)
        case "upstream_head":
            return flow.upstream_head(200, "application/json", now)
        case "upstream_lost":
            return flow.upstream_lost(Failure.INTERRUPTED, None, now)
        case "key_revoked":
            return flow.key_revoked(None, now)
    return getattr(flow, event)(now)


@pytest.mark.parametrize("state", range(len(NAMES)), ids=NAMES)
@pytest.mark.parametrize("event", ROWS)
def test_an_event_comes_where_the_table_says(event: str, state: FlowState) -> None:
    playbook = playbook_in(state)
    row = ROWS[event]
    if state not in row.comes_in:
        with pytest.raises(IllegalEvent, match=f"{event} in {NAMES[state]}"):
            call(playbook, event)
        assert playbook.flow.state == state
    else:
        call(playbook, event)
        assert playbook.flow.state in row.leads_to


def test_the_table_names_every_event() -> None:
    """An event is a public method that takes the time."""
    (flow,) = [node for node in ast.parse(FLOW.read_text()).body if isinstance(node, ast.ClassDef)]
    takes_time = {
        method.name
        for method in flow.body
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
        if any(argument.arg == "now" for argument in (*method.args.args, *method.args.kwonlyargs))
    }
    assert takes_time == set(ROWS)


REPLICAS = st.sampled_from(
    ["a", "a b", "kept a", "loading", "-", "a | other=c", "kept - | other=c"]
)
EVENTS = [
    "body",
    'body {"model":"tiny","stream":true}',
    'body {"model":"x"}',
    "refused",
    "lost",
    "silent",
    "broken",
    "response 200",
    "response 401",
    "response 503",
    "response 200 text/event-stream",
    'says 500 {"error":{"code":500,"message":"Context size has been exceeded."}}',
    'says 500 {"error":{"message":"EngineCore encountered an issue."}}',
    "end",
    "cut",
    "timer",
    "routes a",
    "routes b c",
    "routes kept d",
    "routes loading",
    "routes -",
    "after 0.3",
    "after 4",
    "after 70",
    "leaves",
]
OF_WORD = {
    "request": "head",
    "telling": "head",
    "body": "body",
    "response": "upstream_head",
    "says": "upstream_head",
    "end": "upstream_end",
    "cut": "upstream_lost",
    "timer": "timer",
    "leaves": "client_gone",
    **dict.fromkeys(("refused", "lost", "silent", "broken"), "upstream_failed"),
}


@given(
    REPLICAS,
    st.sampled_from(["request", "telling"]),
    st.lists(st.sampled_from(EVENTS), max_size=12),
)
def test_no_order_of_events_leaves_the_table(replicas: str, first: str, words: list[str]) -> None:
    """Each event is accepted exactly where the table has it, and leads to the state that the table
    gives. In each state, the request has what the state means: a place in the queue, a replica, a
    reservation."""
    limiter = Counting(room=9)
    playbook = Playbook(replicas, limiter)
    flow = playbook.flow
    router = playbook.router
    for word in (first, *words):
        before = flow.state
        event = OF_WORD.get(word.partition(" ")[0])
        if event is None:  # time passes, or the routes change
            playbook.event(word)
            assert flow.state == before or (before, flow.state) in set(
                ROWS["routes_changed"].steps()
            )
        elif before not in ROWS[event].comes_in:
            with pytest.raises(IllegalEvent):
                playbook.event(word)
            assert flow.state == before
        else:
            playbook.event(word)
            assert flow.state in ROWS[event].leads_to

        assert (flow in router.waiting) == (flow.state == HELD)
        assert (flow.target is not None) == (flow.state in (SENT, STREAMING))
        assert bool(router.in_flight) == (flow.state in (SENT, STREAMING))
        assert sum(not grant.settled for grant in limiter.grants) == (
            flow.state in (HELD, SENT, STREAMING)
        )
        assert len(playbook.requests()) == (flow.state == ENDED)


def test_what_waits_says_so() -> None:
    """The request is held exactly when the command is to wait."""
    playbook = playbook_in(HELD)
    assert isinstance(playbook.flow.timer(playbook.now), WaitForReplica)
    assert playbook.flow.state == HELD


def listed(states: tuple[FlowState, ...]) -> str:
    return ", ".join(NAMES[state] for state in states)


def test_the_architecture_shows_the_table() -> None:
    shown = ARCHITECTURE.read_text()
    rows = [
        f"| `{row.event}` | {listed(row.comes_in)} | {listed(row.leads_to)} |"
        for row in TRANSITIONS
    ]
    assert "\n".join(["| event | arrives in | leads to |", "|---|---|---|", *rows]) in shown
