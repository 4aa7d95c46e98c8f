"""The book of agent addresses: what a proxy learns about them, and which ones it tries."""

from __future__ import annotations

import pytest

from moorage.common.link.messages import AppRoute, ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.dialout.prober import addresses
from moorage.proxy.dialout.reach import AGAIN_S, ANSWERS_S, FAILURES, RETRY_S, ReachBook, ReachProbe

HOST = "192.0.2.7"
DIALED = "node-1.agent.invalid"


def attempts(book: ReachBook, outcomes: str, now: float = 0.0) -> float:
    """One attempt for each character: ``+`` for an answer, ``-`` for none. Returns when the next
    one is due."""
    for outcome in outcomes:
        while not (due := book.due(now)):
            now += 1

        for attempt in due:
            book.record(attempt, now, answers=outcome == "+")

    first = now
    while not book.due(now):
        now += 1

    return now - first


@pytest.mark.parametrize(
    ("outcomes", "is_found", "pause_s"),
    [
        ("+", False, ANSWERS_S),
        ("-", False, RETRY_S),
        ("-" * (FAILURES - 1), False, RETRY_S),
        ("-" * FAILURES, True, AGAIN_S),
        ("--+--", False, RETRY_S),
        ("-" * FAILURES + "+", False, ANSWERS_S),
    ],
)
def test_findings(outcomes: str, is_found: bool, pause_s: float) -> None:
    book = ReachBook()
    book.follow({HOST: ReachProbe(HOST, (9000,))})
    pause = attempts(book, outcomes)
    assert book.unreached == ((HOST,) if is_found else ())
    assert pause == pause_s


def test_all_ports_of_an_address_are_tried_before_it_is_given_up() -> None:
    book = ReachBook()
    book.follow({HOST: ReachProbe(HOST, (9000, 9001))})
    (first,) = book.due(0)
    assert book.due(0) == []
    book.record(first, 0, answers=False)
    (second,) = book.due(RETRY_S)
    assert {first.port, second.port} == {9000, 9001}


def test_a_request_that_fails_is_tried_at_once_and_what_left_the_table_is_forgotten() -> None:
    book = ReachBook()
    book.follow({HOST: ReachProbe(HOST, (9000,))})
    attempts(book, "+")
    assert book.due(ANSWERS_S + 1) == []
    book.suspect(HOST, ANSWERS_S + 1)
    book.suspect("198.51.100.1", ANSWERS_S + 1)
    book.follow({})
    assert book.due(10 * ANSWERS_S) == []


def test_addresses_are_those_of_kernels_and_a_refusal_at_an_app_is_an_answer() -> None:
    def target(name: str, host: str, **fields: bool) -> Target:
        return Target(
            SessionId(name),
            KernelId(name),
            host=host,
            port=9000,
            key="key",
            engine="vllm",
            **fields,
        )

    def app(session: str, host: str) -> AppRoute:
        return AppRoute(
            session,
            "web",
            protocol="http",
            base_path=False,
            host=host,
            port=9100,
            key="key",
            user="user",
            project="project",
        )

    targets = (
        target("a", HOST), target("b", DIALED), target("c", "api.example", tls=True),
        target("d", "192.0.2.8", draining=True),
    )  # fmt: skip
    table = RouteTable(
        1, (ModelRoute("m", 1, targets),), (), apps=(app("a", HOST), app("e", "192.0.2.9"))
    )
    assert addresses(IndexedTable(table)) == {
        HOST: ReachProbe(HOST, (9000,)),
        "192.0.2.9": ReachProbe("192.0.2.9", (9100,), may_refuse=True),
    }
