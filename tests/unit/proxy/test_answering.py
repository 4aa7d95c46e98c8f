"""Replicas that answer, and replicas that fail all tenants, judged by the results of requests."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.control.shared_limits import SharedMemory, create
from moorage.proxy.core.answering import ANSWERED_S, FAILED, KEYS, WINDOW_S, Answering
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.result_news import LENGTH
from moorage.proxy.core.retry import Failure

A = KernelId("a")
B = KernelId("b")


@pytest.mark.parametrize(
    ("results", "since"),
    [
        ("1:x 2:y", 1.0),
        ("1:x 2:x 3:x 4:x", None),  # only one tenant
        ("1:x 2:y 3:ok", None),
        ("1:x 2:ok 3:y", None),
        ("1:x 2:ok 3:y 4:x", 3.0),
        ("1:x 40:y", None),  # each of them had its own fault, perhaps
        ("1:x 40:y 41:x", 40.0),
        ("1:x 2:y 50:x", 1.0),  # this does not change until the replica answers
        ("1:- 2:-", 1.0),  # no keys are needed
    ],
)
def test_a_replica_fails_everybody(results: str, since: float | None) -> None:
    answering = Answering()
    for at, _, key in (one.partition(":") for one in results.split()):
        if key == "ok":
            answering.answered(A, float(at))
        else:
            answering.failed(A, key.strip("-"), float(at))

    assert answering.failing_since(A) == since
    assert answering.failing_since(B) is None
    answering.keep_only({B})
    assert answering.failing_since(A) is None


def test_an_answer_counts_for_a_while() -> None:
    answering = Answering()
    assert not answering.has_answered(A, 0.0)
    answering.answered(A, 5.0)
    assert answering.has_answered(A, 5.0 + ANSWERED_S)
    assert not answering.has_answered(A, 5.1 + ANSWERED_S)
    answering.keep_only(set())
    assert not answering.has_answered(A, 5.0)


@examples(200)
@given(
    st.lists(
        st.tuples(st.floats(0, 2 * WINDOW_S), st.sampled_from("xyz"), st.booleans()), max_size=20
    )
)
def test_one_key_or_one_answer_is_enough_to_stay(results: list[tuple[float, str, bool]]) -> None:
    answering = Answering()
    now = 0.0
    keys = set[str]()
    for gap, key, is_answer in results:
        now += gap
        if is_answer:
            answering.answered(A, now)
            keys = set()
        else:
            answering.failed(A, key, now)
            keys.add(key)

        if len(keys) < KEYS:
            assert answering.failing_since(A) is None


def router() -> RequestRouter:
    made = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=lambda _: 0)
    targets = tuple(
        Target(SessionId(one), KernelId(one), host="h", port=1, key="k", engine="custom")
        for one in "ab"
    )
    made.update_table(RouteTable(1, (ModelRoute("m", 1, targets),), ()))
    return made


def picked(made: RequestRouter, now: float) -> set[str]:
    found = set[str]()
    for first in (0, 1):
        made.randrange = lambda n, first=first: first % n  # type: ignore[misc]
        target = made.pick_target("m", (), now)
        assert target is not None
        found.add(target.kernel_id)
    return found


@pytest.mark.parametrize(
    "status", [200, 400, 401, 404, 413, 422, 429, 499, 500, 501, 502, 503, 504]
)
def test_statuses_that_make_a_replica_leave(status: int) -> None:
    """A 4xx response never causes this, so no tenant can trigger it, with any number of keys."""
    made = router()
    assert made.table is not None
    target = made.table.models["m"].targets[0]
    for key in ("x", "x", "y"):
        made.record_status(target, key, status, 10.0)
    assert picked(made, 10.0) == ({"b"} if status in FAILED else {"a", "b"})


@pytest.mark.parametrize(
    ("failure", "leaves"),
    [
        (Failure.DISCONNECT, True),
        (Failure.IDLE_TIMEOUT, True),
        (Failure.BUSY, False),  # its status was already counted
        (Failure.INTERRUPTED, False),  # it had already started to answer
        (Failure.KEY_REJECTED, False),
        (Failure.KEY_REVOKED, False),
    ],
)
def test_failures_that_make_a_replica_leave(failure: Failure, leaves: bool) -> None:
    made = router()
    assert made.table is not None
    target = made.table.models["m"].targets[0]
    for key in ("x", "y"):
        made.record_failure("m", target, key, failure, now=10.0)
    assert picked(made, 10.0) == ({"b"} if leaves else {"a", "b"})


def test_a_replica_that_fails_everybody_is_tried_again_and_returns_by_an_answer_only() -> None:
    made = router()
    assert made.table is not None
    a, b = made.table.models["m"].targets
    for key in ("x", "y"):
        made.record_status(a, key, 500, 10.0)

    assert picked(made, 14.9) == {"b"}
    assert picked(made, 15.1) == {"a", "b"}
    made.record_status(a, "x", 500, 15.1)
    assert picked(made, 24.0) == {"b"}, "twice as long"
    made.record_status(a, "x", 400, 24.0)
    made.record_status(a, "x", 200, 24.0, is_error=True)
    assert picked(made, 24.0) == {"b"}, "what is refused says nothing"
    made.record_status(a, "x", 200, 24.0)
    assert picked(made, 24.0) == {"a", "b"}
    for one in (a, b):
        for key in ("x", "y"):
            made.record_status(one, key, 502, 30.0)

    assert picked(made, 30.0) == {"a"}, "the last ones stay"


def workers() -> tuple[RequestRouter, RequestRouter]:
    """The routers of two workers of one proxy."""
    fd = create()
    made = (router(), router())
    for number, one in enumerate(made):
        one.results = SharedMemory(os.dup(fd), number).results
    os.close(fd)
    return made


def targets_of(made: RequestRouter) -> tuple[Target, ...]:
    assert made.table is not None
    return made.table.models["m"].targets


def test_two_keys_that_fail_at_two_workers_are_two() -> None:
    one, other = workers()
    a, _ = targets_of(one)
    one.record_status(a, "x", 500, 10.0)
    other.record_status(a, "x", 500, 10.0)
    assert picked(one, 10.0) == picked(other, 10.0) == {"a", "b"}, "one tenant alone"
    other.record_failure("m", a, "y", Failure.IDLE_TIMEOUT, now=11.0)
    for worker in (one, other):
        assert picked(worker, 11.0) == {"b"}
        assert worker.answering.failing_since(A) == 10.0

    assert picked(one, 16.1) == {"a", "b"}, "it is tried again"
    one.record_status(a, "x", 500, 16.1)
    other.record_status(a, "x", 500, 16.2)
    assert picked(one, 26.0) == picked(other, 26.0) == {"b"}, "twice as long, not four times"
    other.record_status(a, "z", 200, 26.1)
    assert picked(one, 26.1) == picked(other, 26.1) == {"a", "b"}
    assert one.answering.failing_since(A) is None


def test_an_answer_at_one_worker_speaks_for_all() -> None:
    one, other = workers()
    a, _ = targets_of(one)
    one.record_status(a, "x", 500, 10.0)
    other.record_status(a, "x", 200, 10.5)
    one.record_status(a, "y", 500, 11.0)
    assert picked(one, 11.0) == picked(other, 11.0) == {"a", "b"}


def test_each_request_without_a_key_counts_once_at_every_worker() -> None:
    one, other = workers()
    a, _ = targets_of(one)
    one.record_status(a, "", 500, 10.0)
    assert picked(one, 10.0) == picked(other, 10.0) == {"a", "b"}
    other.record_status(a, "", 500, 10.1)
    assert picked(one, 10.1) == picked(other, 10.1) == {"b"}


def test_what_one_worker_cannot_reach_the_others_avoid() -> None:
    one, other = workers()
    a, _ = targets_of(one)
    one.record_failure("m", a, "x", Failure.CONNECT, now=10.0)
    assert picked(other, 10.0) == {"b"}
    other.record_failure("m", a, "x", Failure.BUSY, now=10.0)
    other.record_status(a, "x", 404, 15.1)
    assert picked(one, 15.1) == {"a", "b"}


def test_a_worker_that_was_away_for_long_goes_on() -> None:
    one, other = workers()
    a, b = targets_of(one)
    for number in range(3 * LENGTH):
        one.record_status(a, f"{number}", 500, 10.0)
    one.record_status(b, "x", 500, 10.0)
    one.record_status(b, "y", 500, 10.0)
    assert len(other.results.read()) == LENGTH
    assert other.results.read() == []
