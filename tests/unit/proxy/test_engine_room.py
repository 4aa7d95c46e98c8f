"""Engine capacity: which refusals mean "not now", and how many requests a replica gets after
one."""

from __future__ import annotations

import pytest
from flow_playbook import Playbook
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.model.ids import KernelId
from moorage.proxy.core.engine_room import (
    FIRST_GROWTH_S,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    ONCE_S,
    EngineRoom,
    ends_without_room,
    tells_of_no_room,
)

# On /v1/messages, in the middle of a stream.
ANTHROPIC = '{"code":500,"message":"Context size has been exceeded.","type":"server_error"}'
LLAMACPP = (
    '{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'
)
TGI = '{"error":"Model is overloaded","error_type":"overloaded"}'
SGLANG = '{"object":"error","message":"The request queue is full.","type":"Service Unavailable","code":503}'
A = KernelId("a")


@pytest.mark.parametrize(
    ("status", "begin", "is_no_room"),
    [
        (500, LLAMACPP, True),
        (200, f"data: {LLAMACPP}\n\n", True),
        (429, TGI, True),
        (503, SGLANG, True),
        (200, 'data: {"error": {"message": "The request queue is full.", "code": 503}}\n\n', True),
        (400, LLAMACPP, False),
        (503, LLAMACPP, False),
        (200, LLAMACPP, False),
        (200, 'data: {"choices":[{"text":"Context size has been exceeded."}]}\n\n', False),
        (400, '{"error":{"message":"request (3003 tokens) exceeds the available context size"}}', False),
        (500, '{"error":{"message":"Compute error."}}', False),
        (429, '{"error":{"message":"Rate limit reached"}}', False),
    ],
)  # fmt: skip
def test_words_of_engines(status: int, begin: str, is_no_room: bool) -> None:
    assert tells_of_no_room(status, begin.encode()) is is_no_room


def test_stream_that_ends_for_want_of_room() -> None:
    assert ends_without_room(f"data: {LLAMACPP}\n\n".encode())
    assert ends_without_room(f"event: error\ndata: {ANTHROPIC}\n\n".encode())
    assert not ends_without_room(f"event: content_block_delta\ndata: {ANTHROPIC}\n\n".encode())
    assert not ends_without_room(b'data: {"choices":[{"text":"The request queue is full."}]}\n\n')


def test_all_that_an_engine_drops_at_once_is_one_refusal() -> None:
    room = EngineRoom()
    for in_flight in (4, 3, 2, 1):
        room.refused(A, in_flight, 10.0)
    assert not room.takes(A, 0, 10.0 + FIRST_PAUSE_S / 2), "others may send there, too"
    assert [room.takes(A, n, 10.0 + FIRST_PAUSE_S) for n in (0, 1, 2)] == [True, True, False]


def test_bound_is_halved_and_grows_again() -> None:
    room = EngineRoom()
    now = 10.0
    for most in (4, 2, 1, 1):
        room.refused(A, 8 if now == 10.0 else 2 * most, now)
        assert [
            room.takes(A, most - 1, now + LONGEST_PAUSE_S),
            room.takes(A, most, now + LONGEST_PAUSE_S),
        ] == [
            True,
            False,
        ]
        now += ONCE_S

    room.refused(A, 2, now)
    room.answered(A, now + FIRST_GROWTH_S - 1)
    assert not room.takes(A, 1, now + FIRST_GROWTH_S)
    now += FIRST_GROWTH_S
    room.answered(A, now)
    assert room.takes(A, 1, now)
    room.refused(A, 2, now + ONCE_S)
    room.answered(A, now + FIRST_GROWTH_S + ONCE_S)
    assert not room.takes(A, 1, now + FIRST_GROWTH_S + ONCE_S), (
        "it was one too many: not again so soon"
    )
    now += 2 * FIRST_GROWTH_S + ONCE_S
    for _ in range(2):
        room.answered(A, now)
        now += 2 * FIRST_GROWTH_S

    assert not room.bounds, "as many as were refused are tried again, and then any number"


@examples(100)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.floats(0, 40)), max_size=30))
def test_a_replica_is_never_closed_for_good(events: list[tuple[bool, int, float]]) -> None:
    room = EngineRoom()
    now = 0.0
    for is_refusal, in_flight, passes_s in events:
        if is_refusal:
            room.refused(A, in_flight, now)
        else:
            room.answered(A, now)

        now += passes_s
        assert room.takes(A, 0, now + LONGEST_PAUSE_S)

    room.keep_only(())
    assert not room.bounds


SAYS = f"says 500 {LLAMACPP}"


@pytest.mark.parametrize(
    ("replicas", "steps", "recorded"),
    [
        ("a b", [f"{SAYS} > send b", "response 200 > start", "end"], "200"),
        (
            "kept a",
            [f"{SAYS} > hold 0.5", "after 0.5", "timer > send a", "response 200 > start", "end"],
            "200",
        ),
        (
            "a",
            [f"{SAYS} > hold 0.5", "after 0.5", "timer > send a", "response 200 > start", "end"],
            "200",
        ),
        ("a b", [f"{SAYS} > send b", f"{SAYS} > hold 0.5", "leaves"], "499"),
        (
            "a",
            [f"{SAYS} > hold 0.5", "after 61", "timer > send a", f"{SAYS} > start", "end"],
            "500",
        ),
        ("a|small=s", [f"{SAYS} > send s", "response 200 > start", "end"], "200"),
        ("a", ["response 200 > start", "end"], "200"),
    ],
    ids=[
        "elsewhere",
        "held",
        "no endpoint",
        "all full",
        "its own words in the end",
        "fallback",
        "room",
    ],
)
def test_what_is_refused_for_room(replicas: str, steps: list[str], recorded: str) -> None:
    playbook = Playbook(replicas)
    for step in ("request > read", "body > send a", *steps):
        event, _, command = step.partition(" > ")
        assert playbook.event(event) == command, step
    [(_, status)] = playbook.requests()
    assert status == recorded
    assert not playbook.router.in_flight
    assert not playbook.router.held


def test_it_says_nothing_of_the_health_of_a_replica() -> None:
    playbook = Playbook("a")
    others = [playbook.another() for _ in range(3)]
    for each in (playbook, *others):
        each.event("request")
        each.event("body")
    assert playbook.event(SAYS).startswith("hold")
    assert playbook.router.answering.failing_since(A) is None
    for each in (playbook, *others):
        each.event("leaves")


def test_requests_that_wait_go_on_when_one_ends() -> None:
    """At most as many requests are sent at a time as the replica has room for, and in order."""
    requests = [Playbook("a")]
    requests += [requests[0].another() for _ in range(3)]
    for each in requests:
        assert [each.event("request"), each.event("body")] == ["read", "send a"]

    assert [each.event(SAYS) for each in requests] == ["hold 0.5"] * 4
    for each in requests:
        each.event("after 0.5")

    assert [each.event("timer") for each in requests] == ["send a", "send a", "hold 1", "hold 1"]
    for ends, resumed in (
        (1, [0, 0, 1, 0]),
        (0, [0, 0, 1, 1]),
        (2, [0, 0, 1, 1]),
        (3, [0, 0, 1, 1]),
    ):
        assert requests[ends].event("response 200") == "start"
        requests[ends].event("end")
        assert [len(each.resumed) for each in requests] == resumed

    assert requests[3].resumed == ["send a"]
    assert not requests[0].router.in_flight
