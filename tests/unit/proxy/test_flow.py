"""Playbooks for the request flow: sequences of events, and the command that answers each.

Events and commands are written as words. After each playbook nothing may be left in flight, held or
reserved.
"""

from __future__ import annotations

import pytest
from flow_playbook import BODY, CHAT, KEY, Counting, Playbook, describe
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from moorage.common.link.messages import KeyGrant, RouteTable
from moorage.proxy.core.admission import BodyRequired
from moorage.proxy.core.commands import StartResponse
from moorage.proxy.core.flow import RequestFlow, resume_held

SENT = ("request > read", "body > send a")
HELD = ("request > read", "body > hold 1")
TOLD = (
    "telling > read",
    'body {"model":"tiny","stream":true} > hold 5 : queued position=1 eta=12s',
)
DEAD = 'says 500 {"error":{"message":"EngineCore encountered an issue. See stack trace (above)","code":500}}'
DEAD_STREAM = 'says 200 data: {"error": {"message": "EngineCore encountered an issue."}}'
FULL = 'says 500 {"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'
PLAYBOOKS: dict[str, tuple[str, list[str], str]] = {
    # name: replicas, events with the command that follows each, recorded status
    "answered": ("a", [*SENT, "response 200 > start", "end"], "tiny 200"),
    "engine's own error passes": ("a b", [*SENT, "response 400 > start", "end"], "tiny 400"),
    "wrong key": ("a", ["request other > 401 invalid_api_key"], "- 401"),
    "unknown model": ("a", ["request > read", 'body {"model":"x"} > 404 model_not_found'], "- 404"),
    "no JSON": ("a", ["request > read", "body { > 400 None"], "- 400"),
    "refused, then elsewhere": (
        "a b", [*SENT, "refused > send b", "response 200 > start", "end"], "tiny 200"
    ),
    "three are tried, and no more": (
        "a b c d",
        [*SENT, "refused > send b", "refused > send c", "refused > 502 upstream_error"],
        "tiny 502",
    ),
    "lost once, then elsewhere": ("a b", [*SENT, "lost > send b", "response 200 > start", "end"], "tiny 200"),
    "lost twice: it may be the request": (
        "a b c", [*SENT, "lost > send b", "lost > 502 upstream_error"], "tiny 502"
    ),
    "the only replica had closed an idle connection": (
        "a", [*SENT, "lost > send a", "response 200 > start", "end"], "tiny 200"
    ),
    "engine dead, then elsewhere": (
        "a b", [*SENT, f"{DEAD} > send b", "response 200 > start", "end"], "tiny 200"
    ),
    "stream of a dead engine, then elsewhere": (
        "a b", [*SENT, f"{DEAD_STREAM} > send b", "response 200 > start", "end"], "tiny 200"
    ),
    "two dead engines: it may be the request": (
        "a b c", [*SENT, f"{DEAD} > send b", f"{DEAD} > 502 upstream_error"], "tiny 502"
    ),
    "lost, and then an engine dead: it may be the request": (
        "a b c", [*SENT, "lost > send b", f"{DEAD} > 502 upstream_error"], "tiny 502"
    ),
    "engine dead, and then lost: it may be the request": (
        "a b c", [*SENT, f"{DEAD} > send b", "lost > 502 upstream_error"], "tiny 502"
    ),
    "another error of the engine passes": (
        "a b", [*SENT, 'says 500 {"error":{"message":"no"}} > start', "end"], "tiny 500"
    ),
    "an answer may quote a dead engine": (
        "a b", [*SENT, "says 200 EngineCore encountered an issue > start", "end"], "tiny 200"
    ),
    "the only engine is dead: held until another is ready": (
        "kept a",
        [*SENT, f"{DEAD} > hold 5", "routes kept b > send b", "response 200 > start", "end"],
        "tiny 200",
    ),
    "each engine that is started dies: it may be the request": (
        "kept a", [*SENT, f"{DEAD} > hold 5", "routes kept b > send b", f"{DEAD} > 502 upstream_error"],
        "tiny 502",
    ),
    "the only engine is dead, and no other is on its way": (
        "a", [*SENT, f"{DEAD} > 502 upstream_error"], "tiny 502"
    ),
    "busy, then elsewhere": (
        "a b", [*SENT, "response 503 > send b", "response 200 > start", "end"], "tiny 200"
    ),
    "all busy: the last answer passes": (
        "a b", [*SENT, "response 429 > send b", "response 503 > start", "end"], "tiny 503"
    ),
    "too late to retry": ("a b", [*SENT, "after 11", "refused > 502 upstream_error"], "tiny 502"),
    "time for the body does not count": (
        "a b",
        ["request > read", "after 30", "body > send a", "refused > send b", "response 200 > start", "end"],
        "tiny 200",
    ),
    "silent replica": ("a b", [*SENT, "silent > 504 upstream_timeout"], "tiny 504"),
    "our own key is refused": ("a b", [*SENT, "response 401 > 502 upstream_error"], "tiny 502"),
    "cut off": ("a b", [*SENT, "response 200 > start", "cut > break"], "tiny 200"),
    "stream cut off": ("a b", [*SENT, "response 200 > start", "cut data: {} > error event"], "tiny 200"),
    "stream cut off after its end": (
        "a b", [*SENT, "response 200 > start", "cut data: [DONE]\n\n > finish"], "tiny 200"
    ),
    "held until a replica is ready": (
        "-", [*HELD, "routes - >", "routes a > send a", "response 200 > start", "end"], "tiny 200"
    ),
    "held in vain": ("-", [*HELD, "after 1", "timer > 503 model_loading"], "tiny 503"),
    "held while the model is removed": ("-", [*HELD, "gone > 404 model_not_found"], "- 404"),
    "held while the model is loaded": (
        "loading",
        ["request > read", "body > hold 60", "routes loading >", "after 50", "routes a > send a", "leaves"],
        "tiny 499",
    ),
    "loaded in vain": (
        "loading",
        ["request > read", "body > hold 60", "after 60", "timer > 503 model_loading"],
        "tiny 503",
    ),
    "begins to load while held": (
        "-",
        [*HELD, "routes loading > hold 60", "after 1", "timer > hold 60", "routes a > send a", "leaves"],
        "tiny 499",
    ),
    "ceases to load": (
        "loading",
        ["request > read", "body > hold 60", "after 9", "routes - > 503 model_loading"],
        "tiny 503",
    ),
    "all are dead: held until another is ready": (
        "kept a b",
        [
            *SENT,
            "refused > send b",
            "refused > hold 5",
            "routes kept a b >",
            "routes loading >",
            "after 5",
            "timer > hold 60",
            "after 20",
            "routes kept c > send c",
            "response 200 > start",
            "end",
        ],
        "tiny 200",
    ),
    "unreachable for a while": (
        "kept a",
        [*SENT, "refused > hold 5", "after 5", "timer > send a", "response 200 > start", "end"],
        "tiny 200",
    ),
    "unreachable for too long": (
        "kept a",
        [
            *SENT,
            "refused > hold 5",
            "after 58",
            "timer > send a",
            "refused > hold 60",
            "after 2",
            "timer > 502 upstream_error",
        ],
        "tiny 502",
    ),
    "refused at the end of its time": (
        "kept a",
        [*SENT, "refused > hold 5", "after 59", "timer > send a", "after 1", "refused > 502 upstream_error"],
        "tiny 502",
    ),
    "held between two losses: it may be the request": (
        "kept a b",
        [
            *SENT,
            "lost > send b",
            "refused > hold 5",
            "routes kept c d > send c",
            "lost > 502 upstream_error",
        ],
        "tiny 502",
    ),
    "unreachable, and then removed": (
        "kept a", [*SENT, "refused > hold 5", "after 1", "routes - > 503 model_loading"], "tiny 503"
    ),
    "told while its replica is replaced": (
        "kept a",
        [
            "telling > read",
            'body {"model":"tiny","stream":true} > send a',
            "refused > hold 5 : queued position=1 eta=12s",
            "leaves",
        ],
        "tiny 499",
    ),
    "told while it waits": (
        "loading",
        [
            *TOLD,
            "after 5",
            "timer > hold 10 : queued position=1 eta=7s",
            "after 8",
            "timer > hold 18 : queued position=1",
            "routes a > send a",
            "response 200 text/event-stream > start",
            "cut data: {} > error event",
        ],
        "tiny 200",
    ),
    "told, and then an error": ("loading", [*TOLD, "after 60", "timer > error event"], "tiny 503"),
    "told, and then refused": (
        "loading",
        [*TOLD, "routes a b > send a", "refused > send b", "refused > error event"],
        "tiny 502",
    ),
    "told only if it streams": ("loading", ["telling > read", "body > hold 60", "leaves"], "tiny 499"),
    "leaves before its body": ("a", ["request > read", "leaves"], "- 499"),
    "leaves while it is held": ("-", [*HELD, "leaves", "routes a >"], "tiny 499"),
    "leaves while the replica works": ("a", [*SENT, "leaves"], "tiny 499"),
    "leaves in the middle": ("a", [*SENT, "response 200 > start", "leaves", "leaves"], "tiny 499"),
}  # fmt: skip


def play(playbook: Playbook, steps: list[str]) -> None:
    for step in steps:
        event, separator, expected = step.partition(" >")
        if event == "gone":
            held = playbook.router.table
            assert held is not None
            playbook.router.update_table(RouteTable(held.generation + 1, (), (KEY,)))
            resume_held(playbook.router, playbook.now)
            answer = playbook.resumed.pop()
        else:
            answer = playbook.event(event)

        assert answer == expected.strip() if separator else True, step


def assert_settled(playbook: Playbook) -> None:
    assert not playbook.router.in_flight
    assert not playbook.router.in_flight_by_model
    assert not playbook.router.held


@pytest.mark.parametrize("name", PLAYBOOKS)
@pytest.mark.parametrize("limited", [False, True], ids=["", "limited"])
def test_playbook(name: str, limited: bool) -> None:
    replicas, steps, recorded = PLAYBOOKS[name]
    limiter = Counting() if limited else None
    playbook = Playbook(replicas, limiter)
    play(playbook, steps)
    assert_settled(playbook)
    model, code = recorded.split()
    assert playbook.requests() == {(model, code): 1}
    if limiter is not None and limiter.grants:
        assert limiter.grants[0].settled == [int(code)]
        assert code != "200" or limiter.grants[0].session_id == "s", "whose replica answered"


def test_limiter_knows_who_asks_for_what() -> None:
    limiter = Counting()
    playbook = Playbook("a", limiter)
    play(playbook, ["request > read", 'body {"model":"tiny","max_tokens":5} > send a'])
    (ask,) = limiter.asks
    assert (ask.identity, ask.permit.name, ask.path, ask.request_id) == (KEY, "tiny", CHAT, "id-1")
    assert ask.members == {"model": "tiny", "max_tokens": 5}
    assert playbook.flow.identity == KEY
    assert ask.prompt_bytes == len(playbook.flow.payload)
    assert playbook.router.last_request == {"tiny": 100.0}


PRIORITIZED = b'{"model":"tiny","priority":-30}'


@pytest.mark.parametrize("replicas", ["-", "loading"])
def test_priority_reaches_a_replica_that_came_after_its_request(replicas: str) -> None:
    playbook = Playbook(replicas, Counting(priority=40))
    play(playbook, ["request > read", "body"])
    play(playbook, ["routes v1 > send v1"])
    assert playbook.flow.payload == PRIORITIZED


def test_priority_is_told_to_replicas_that_read_it() -> None:
    playbook = Playbook("v1 a", Counting(priority=40))
    play(playbook, ["request > read", "body > send v1"])
    assert playbook.flow.payload == PRIORITIZED
    play(playbook, ["refused > send a"])
    assert playbook.flow.payload == BODY
    play(playbook, ["response 200 > start"])
    assert playbook.flow.payload == b"", (
        "nothing of the request is kept while its answer is relayed"
    )


def test_refused_by_the_limiter() -> None:
    playbook = Playbook("a", Counting(room=0))
    play(playbook, ["request > read", "body > 429 rate_limit_exceeded"])
    assert_settled(playbook)


def test_response_headers_and_observer_come_from_the_reservation() -> None:
    limiter = Counting()
    playbook = Playbook("a", limiter)
    play(playbook, ["request > read", "body > send a"])
    limiter.grants[0].observer = bytes.upper
    playbook.flow.sent(100.5)
    command = playbook.flow.upstream_head(200, "text/event-stream", 101.0)
    assert isinstance(command, StartResponse)
    assert (command.overhead_s, command.observe) == (0.5, bytes.upper)
    assert command.more == (("x-ratelimit-limit-requests", "10"),)


def test_equal_head_is_admitted_again_until_its_key_expires() -> None:
    playbook = Playbook("a")
    playbook.event("request")
    admitted = playbook.flow.admitted
    assert admitted is not None
    again = RequestFlow(playbook.router, "id-2", 0.0)
    assert describe(again.head_again(admitted, 0.0, 0.0)) == "read"
    assert describe(again.body(BODY, 0.0)) == "send a"
    expiring = KeyGrant(KEY.sha256, 1000, "ann", "p")
    late = RequestFlow(playbook.router, "id-3", 0.0)
    assert (
        describe(late.head_again(BodyRequired(CHAT, expiring), 0.0, 1000.0))
        == "401 invalid_api_key"
    )


def test_waiting_requests_go_on_by_priority_and_then_by_arrival() -> None:
    playbook = Playbook("-", Counting(room=9))
    order: list[str] = []
    for number, priority in enumerate([0, 5, 0, 9, 5]):
        flow = RequestFlow(playbook.router, f"{number}", 0.0)
        flow.resume = lambda _, number=number: order.append(str(number))
        flow.head(
            "POST",
            CHAT,
            CIMultiDict({"Authorization": "Bearer key"}),
            len(BODY),
            now=0.0,
            unix_now=0.0,
        )
        playbook.router.limiter = Counting(priority=priority)
        assert describe(flow.body(BODY, 100.0)) == "hold 1"

    assert playbook.router.held == {"tiny": 5}
    playbook.event("routes a")
    assert order == ["3", "1", "4", "0", "2"]
    assert not playbook.router.held


def test_no_more_are_held_than_there_is_room_for() -> None:
    playbook = Playbook("loading", max_held_requests=2, max_held_bytes=100)

    def held(body: bytes) -> str:
        flow = RequestFlow(playbook.router, "id", 100.0)
        flow.head(
            "POST",
            CHAT,
            CIMultiDict({"Authorization": "Bearer key"}),
            len(body),
            now=100.0,
            unix_now=0.0,
        )
        return describe(flow.body(body, 100.0))

    assert held(BODY + b" " * 100) == "503 server_is_overloaded"
    assert held(BODY) == held(BODY) == "hold 60"
    assert held(BODY) == "503 server_is_overloaded"
    playbook.event("routes a")
    playbook.event("routes loading")
    assert held(BODY) == "hold 60", "there is room again"


def test_error_of_a_replica_within_an_open_stream_becomes_an_event() -> None:
    playbook = Playbook("loading")
    play(playbook, [*TOLD, "routes a > send a"])
    command = playbook.flow.upstream_head(400, "application/json", 100.0)
    assert isinstance(command, StartResponse)
    assert command.observe is not None
    pieces = (b'{"error":\n', b' {"message": "no"}}\n', b"")
    assert (
        b"".join(command.observe(piece) for piece in pieces)
        == b'data: {"error":  {"message": "no"}} \n\n'
    )


WORDS = (
    "refused", "lost", "silent", "response 200", "response 503", "response 401", "routes a b", "routes -",
    "after 0.5", "timer", "routes kept a b", "routes kept", DEAD, FULL,
)  # fmt: skip


@given(
    st.lists(st.sampled_from(WORDS), max_size=12),
    st.sampled_from(["-", "a", "a b", "a b c d", "loading", "kept a", "kept a b"]),
)
def test_nothing_is_left_whatever_happens(words: list[str], replicas: str) -> None:
    limiter = Counting()
    playbook = Playbook(replicas, limiter)
    playbook.event("request")
    state = playbook.event("body")
    for word in words:
        if word == "timer" and not state.startswith("hold"):
            continue
        if word.startswith(("routes", "after", "timer")) or state.startswith("send"):
            state = playbook.event(word) or state

        assert sum(playbook.router.in_flight.values()) == state.startswith(("send", "start"))
        assert sum(playbook.router.held.values()) == (state.startswith("hold"))

    playbook.event("leaves")
    assert_settled(playbook)
    assert len(limiter.grants[0].settled) == 1
    assert sum(playbook.requests().values()) == 1
