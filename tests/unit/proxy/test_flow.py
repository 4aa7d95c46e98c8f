"""Playbooks of the request flow: sequences of events, and the command that answers each.

Events and commands are written as words. After each playbook nothing may be left in flight, held or reserved.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from prometheus_client.parser import text_string_to_metric_families

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.admission import BodyRequired, LocalResponse
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.flow import Break, Hold, ReadBody, RequestFlow, Send, Start, resume_held
from moorage.proxy.core.limiter import Ask, Observer
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.retry import Failure
from moorage.proxy.metrics import Metrics

CHAT = "/v1/chat/completions"
BODY = b'{"model":"tiny"}'
KEY = KeyGrant(
    "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683", user="ann", project="p"
)  # "key"
HOLD_S = 1.0
FAILURES = {
    "refused": Failure.CONNECT,
    "lost": Failure.DISCONNECT,
    "silent": Failure.IDLE_TIMEOUT,
    "broken": Failure.INTERRUPTED,
}


def target(name: str) -> Target:
    return Target(SessionId("s"), KernelId(name), "127.0.0.1", 1, "engine-key", "custom")


def table(generation: int, names: str) -> RouteTable:
    """Routes with the model ``tiny``, whose replicas are ``names``; ``-`` for none of them."""
    targets = tuple(target(name) for name in names.split()) if names != "-" else ()
    return RouteTable(generation, (ModelRoute("tiny", 7, targets, "p"),), (KEY,))


@dataclass
class Granted:
    """A reservation that records what it is told."""

    body: bytes
    headers: tuple[tuple[str, str], ...] = (("x-ratelimit-limit-requests", "10"),)
    priority: int = 0
    observer: Observer | None = None
    settled: list[int] = field(default_factory=list)

    def observe(self, status: int, content_type: str) -> Observer | None:
        return self.observer

    def settle(self, status: int, now: float) -> None:
        self.settled.append(status)


class Counting:
    """A limiter that grants ``room`` requests, each with a reservation."""

    def __init__(self, room: int = 1, priority: int = 0) -> None:
        self.room, self.priority = room, priority
        self.asks, self.grants = list[Ask](), list[Granted]()

    def reserve(self, ask: Ask, now: float) -> Granted | ErrorResponse:
        self.asks.append(ask)
        if len(self.grants) >= self.room:
            return ErrorResponse(429, "rate_limit_error", "rate_limit_exceeded", "too many")
        self.grants.append(Granted(ask.body + b" ", priority=self.priority))
        return self.grants[-1]


class Playbook:
    """A flow and what surrounds it. Events and commands as words."""

    def __init__(self, replicas: str, limiter: Counting | None = None) -> None:
        self.router = RequestRouter(ProxySettings(), Metrics(), randrange=lambda _: 0, hold_s=HOLD_S)
        self.router.update_table(table(1, replicas))
        if limiter is not None:
            self.router.limiter = limiter
        self.now = 100.0
        self.flow = RequestFlow(self.router, "id-1", self.now)
        self.resumed: list[str] = []
        self.flow.resume = lambda command: self.resumed.append(describe(command))

    def event(self, words: str) -> str:
        """The command that answers an event."""
        name, _, rest = words.partition(" ")
        flow = self.flow
        match name:
            case "after":
                self.now += float(rest)
                return ""
            case "request":
                fields = CIMultiDict({"Authorization": f"Bearer {rest or 'key'}"})
                return describe(flow.head("POST", CHAT, fields, len(BODY), self.now, 0.0))
            case "body":
                return describe(flow.body(rest.encode() or BODY, self.now))
            case "response":
                status, _, kind = rest.partition(" ")
                return describe(flow.upstream_head(int(status), kind or "application/json", self.now))
            case "end":
                flow.upstream_end(self.now)
                return ""
            case "cut":
                return describe(flow.upstream_lost(Failure.INTERRUPTED, rest.encode() or None, self.now))
            case "timer":
                return describe(flow.timer(self.now))
            case "routes":
                held = self.router.table
                assert held is not None
                self.router.update_table(table(held.generation + 1, rest))
                resume_held(self.router, self.now)
                return self.resumed.pop() if self.resumed else ""
            case "leaves":
                flow.client_gone(self.now)
                return ""
            case _:
                return describe(flow.upstream_failed(FAILURES[name], self.now))

    def requests(self) -> dict[tuple[str, str], float]:
        """Recorded requests by model and status."""
        families = text_string_to_metric_families(self.router.metrics.text().decode())
        return {
            (sample.labels["model"], sample.labels["code"]): sample.value
            for family in families
            if family.name == "moorage_proxy_requests"
            for sample in family.samples
            if sample.name.endswith("_total")
        }


def describe(command: object) -> str:
    match command:
        case ReadBody():
            return "read"
        case Send(found):
            return f"send {found.kernel_id}"
        case Hold():
            return "hold"
        case Start():
            return "start"
        case Break(None):
            return "break"
        case Break(b""):
            return "finish"
        case Break():
            return "error event"
        case LocalResponse():
            return "200"
        case ErrorResponse():
            return f"{command.status} {command.code}"
    return repr(command)


SENT = ("request > read", "body > send a")
HELD = ("request > read", "body > hold")
PLAYBOOKS: dict[str, tuple[str, list[str], str]] = {
    # name: replicas, events with the command that follows each, status that is recorded
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


def test_limiter_knows_who_asks_for_what() -> None:
    limiter = Counting()
    playbook = Playbook("a", limiter)
    play(playbook, ["request > read", 'body {"model":"tiny","max_tokens":5} > send a'])
    (ask,) = limiter.asks
    assert (ask.identity, ask.route.name, ask.path, ask.request_id) == (KEY, "tiny", CHAT, "id-1")
    assert ask.document == {"model": "tiny", "max_tokens": 5}
    assert playbook.flow.identity == KEY
    assert playbook.flow.payload == ask.body + b" ", "the reservation decides what is sent"
    assert playbook.router.last_request == {"tiny": 100.0}


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
    assert isinstance(command, Start)
    assert command == Start(0.5, (("x-ratelimit-limit-requests", "10"),), bytes.upper)


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
    assert describe(late.head_again(BodyRequired(CHAT, expiring), 0.0, 1000.0)) == "401 invalid_api_key"


def test_waiting_requests_go_on_by_priority_and_then_by_arrival() -> None:
    playbook = Playbook("-", Counting(room=9))
    order: list[str] = []
    for number, priority in enumerate([0, 5, 0, 9, 5]):
        flow = RequestFlow(playbook.router, f"{number}", 0.0)
        flow.resume = lambda _, number=number: order.append(str(number))
        flow.head("POST", CHAT, CIMultiDict({"Authorization": "Bearer key"}), len(BODY), 0.0, 0.0)
        playbook.router.limiter = Counting(priority=priority)
        assert describe(flow.body(BODY, 0.0)) == "hold"
    assert playbook.router.held == {"tiny": 5}
    playbook.event("routes a")
    assert order == ["3", "1", "4", "0", "2"]
    assert not playbook.router.held


WORDS = (
    "refused", "lost", "silent", "response 200", "response 503", "response 401", "routes a b", "routes -",
    "after 0.5",
)  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from(["-", "a", "a b", "a b c d"]))
def test_nothing_is_left_whatever_happens(words: list[str], replicas: str) -> None:
    limiter = Counting()
    playbook = Playbook(replicas, limiter)
    playbook.event("request")
    state = playbook.event("body")
    for word in words:
        if word.startswith(("routes", "after")) or state.startswith("send"):
            state = playbook.event(word) or state
        assert sum(playbook.router.in_flight.values()) == state.startswith(("send", "start"))
        assert sum(playbook.router.held.values()) == (state == "hold")
    playbook.event("leaves")
    assert_settled(playbook)
    assert len(limiter.grants[0].settled) == 1
    assert sum(playbook.requests().values()) == 1
