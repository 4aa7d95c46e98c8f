"""Load balancer, ejections and retry policy."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.balancer import Ejections, pick_target
from moorage.proxy.core.retry import Failure, should_retry


def target(name: str, draining: bool = False) -> Target:
    return Target(
        SessionId("s-" + name),
        KernelId(name),
        host="127.0.0.1",
        port=1,
        key="key",
        engine="custom",
        draining=draining,
    )


A = target("a")
B = target("b")
C = target("c")


def always(value: int):
    return lambda n: min(value, n - 1)


@pytest.mark.parametrize(
    ("targets", "in_flight", "ejected", "expected"),
    [
        ((), {}, {}, None),
        ((target("a", True),), {}, {}, None),
        ((A,), {"a": 99}, {}, "a"),
        ((A, B), {"a": 2, "b": 1}, {}, "b"),
        ((A, B), {"a": 1, "b": 2}, {}, "a"),
        ((A, target("b", True)), {"a": 50}, {}, "a"),
        ((A, B), {"b": 50}, {"a": 101.0}, "b"),  # ejected even though idle
        ((A, B), {"b": 1}, {"a": 100.0}, "a"),  # its ejection has just ended
        # all ejected, so the one whose ejection ends first
        ((A, B), {}, {"a": 110.0, "b": 105.0}, "b"),
        ((A, B, target("d", True)), {}, {"a": 105.0, "b": 110.0}, "a"),
        ((target("a", True), B), {}, {"b": 999.0}, "b"),  # draining is worse than ejected
    ],
)
def test_pick_target(targets, in_flight, ejected, expected):
    for randrange in (always(0), always(1), always(9)):
        picked = pick_target(targets, in_flight, ejected, 100.0, randrange=randrange)
        assert (picked.kernel_id if picked else None) == expected


replicas = st.lists(
    st.tuples(st.booleans(), st.integers(0, 20), st.one_of(st.none(), st.floats(0, 200))),
    max_size=8,
)


@given(replicas, st.integers(0, 2**32))
def test_pick_avoids_draining_replicas_and_the_busiest_one(drawn, seed):
    targets = [target(str(i), draining) for i, (draining, _, _) in enumerate(drawn)]
    load = {KernelId(str(i)): n for i, (_, n, _) in enumerate(drawn) if n}
    ejected = {
        KernelId(str(i)): until for i, (_, _, until) in enumerate(drawn) if until is not None
    }
    picked = pick_target(targets, load, ejected, 100.0, randrange=random.Random(seed).randrange)
    candidates = [t for t in targets if not t.draining]
    healthy = [t for t in candidates if ejected.get(t.kernel_id, 0) <= 100.0]
    if picked is None:
        assert not candidates
        return

    assert picked in candidates
    if not healthy:
        assert ejected[picked.kernel_id] == min(ejected[t.kernel_id] for t in candidates)
        return

    assert picked in healthy
    busier = [t for t in healthy if load.get(t.kernel_id, 0) >= load.get(picked.kernel_id, 0)]

    # The chosen replica is the less busy of two drawn at random, so another healthy replica is at
    # least as busy.
    assert len(healthy) == 1 or len(busier) >= 2


@given(st.integers(2, 12), st.integers(20, 400), st.integers(0, 2**32))
def test_two_choices_keep_the_load_even(replicas, requests, seed):
    targets = [target(str(i)) for i in range(replicas)]
    randrange = random.Random(seed).randrange
    load = {}
    for _ in range(requests):
        picked = pick_target(targets, load, {}, 0.0, randrange=randrange)
        assert picked is not None
        load[picked.kernel_id] = load.get(picked.kernel_id, 0) + 1
    # Theory predicts a maximum of mean + ln ln n; 4 leaves room for any seed.
    assert max(load.values()) <= requests / replicas + 4


def test_ejections_double_up_to_a_minute_and_reset_with_a_response():
    ejections = Ejections()
    now = 0.0
    durations = []
    for _ in range(6):
        assert ejections.record_failure(KernelId("a"), now)
        durations.append(ejections.until[KernelId("a")] - now)
        now = ejections.until[KernelId("a")]

    assert durations == [5, 10, 20, 40, 60, 60]
    ejections.record_response(KernelId("a"))
    assert ejections.until == {}
    ejections.record_failure(KernelId("a"), now)
    assert ejections.until[KernelId("a")] == now + 5


def test_simultaneous_failures_count_once():
    ejections = Ejections()
    assert ejections.record_failure(KernelId("a"), 0.0)
    assert not ejections.record_failure(KernelId("a"), 4.9)
    assert ejections.until[KernelId("a")] == 5.0


def test_replicas_missing_from_the_table_are_forgotten():
    ejections = Ejections()
    ejections.record_failure(KernelId("a"), 0.0)
    ejections.record_failure(KernelId("b"), 0.0)
    ejections.keep_only([KernelId("b")])
    assert list(ejections.until) == ["b"]


@pytest.mark.parametrize(
    ("failure", "earlier", "elapsed_s", "expected"),
    [
        (Failure.CONNECT, (), 0, True),
        (Failure.BUSY, (Failure.CONNECT,), 1, True),
        (Failure.CONNECT, (Failure.CONNECT, Failure.BUSY), 1, False),  # three replicas were tried
        (Failure.CONNECT, (), 10.5, False),  # too late
        (Failure.DISCONNECT, (), 0, True),
        # the request may be the one that crashes them
        (Failure.DISCONNECT, (Failure.DISCONNECT,), 0, False),
        (Failure.DISCONNECT, (Failure.CONNECT,), 0, True),
        (Failure.IDLE_TIMEOUT, (), 0, False),
        (Failure.KEY_REJECTED, (), 0, False),
        (Failure.INTERRUPTED, (), 0, False),
    ],
)
def test_should_retry(failure, earlier, elapsed_s, expected):
    assert should_retry(failure, earlier, elapsed_s) is expected
