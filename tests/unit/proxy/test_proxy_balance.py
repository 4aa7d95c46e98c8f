"""Which replica is picked, and how long a failed one rests."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.balancer import Ejections, pick
from moorage.proxy.core.retry import Failure, another


def target(name: str, draining: bool = False) -> Target:
    return Target(SessionId("s-" + name), KernelId(name), "127.0.0.1", 1, "key", "custom", draining)


A, B, C = target("a"), target("b"), target("c")


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
        ((A, B), {"b": 50}, {"a": 101.0}, "b"),  # resting although idle
        ((A, B), {"b": 1}, {"a": 100.0}, "a"),  # its rest has just ended
        ((A, B), {}, {"a": 110.0, "b": 105.0}, "b"),  # all rest: the one that ends first
        ((A, B, target("d", True)), {}, {"a": 105.0, "b": 110.0}, "a"),
        ((target("a", True), B), {}, {"b": 999.0}, "b"),  # draining is worse than resting
    ],
)
def test_pick(targets, in_flight, ejected, expected):
    for dice in (always(0), always(1), always(9)):
        picked = pick(targets, in_flight, ejected, 100.0, dice)
        assert (picked.kernel_id if picked else None) == expected


replicas = st.lists(
    st.tuples(st.booleans(), st.integers(0, 20), st.one_of(st.none(), st.floats(0, 200))),
    max_size=8,
)


@given(replicas, st.integers(0, 2**32))
def test_pick_never_takes_a_draining_replica_nor_the_busiest_of_several(made, seed):
    targets = [target(str(i), draining) for i, (draining, _, _) in enumerate(made)]
    load = {KernelId(str(i)): n for i, (_, n, _) in enumerate(made) if n}
    ejected = {KernelId(str(i)): until for i, (_, _, until) in enumerate(made) if until is not None}
    picked = pick(targets, load, ejected, 100.0, random.Random(seed).randrange)
    able = [t for t in targets if not t.draining]
    awake = [t for t in able if ejected.get(t.kernel_id, 0) <= 100.0]
    if picked is None:
        assert not able
        return
    assert picked in able
    if not awake:
        assert ejected[picked.kernel_id] == min(ejected[t.kernel_id] for t in able)
        return
    assert picked in awake
    busier = [t for t in awake if load.get(t.kernel_id, 0) >= load.get(picked.kernel_id, 0)]
    # Of the two drawn it is the less busy one, so some other awake replica is at least as busy.
    assert len(awake) == 1 or len(busier) >= 2


@given(st.integers(2, 12), st.integers(20, 400), st.integers(0, 2**32))
def test_two_choices_keep_the_load_even(replicas, requests, seed):
    targets = [target(str(i)) for i in range(replicas)]
    dice, load = random.Random(seed).randrange, {}
    for _ in range(requests):
        picked = pick(targets, load, {}, 0.0, dice)
        assert picked is not None
        load[picked.kernel_id] = load.get(picked.kernel_id, 0) + 1
    # The theory says mean + ln ln n; 4 leaves room for any seed.
    assert max(load.values()) <= requests / replicas + 4


def test_a_rest_doubles_up_to_a_minute_and_ends_with_an_answer():
    ejections, now, rests = Ejections(), 0.0, []
    for _ in range(6):
        assert ejections.failed(KernelId("a"), now)
        rests.append(ejections.until[KernelId("a")] - now)
        now = ejections.until[KernelId("a")]
    assert rests == [5, 10, 20, 40, 60, 60]
    ejections.answered(KernelId("a"))
    assert ejections.until == {}
    ejections.failed(KernelId("a"), now)
    assert ejections.until[KernelId("a")] == now + 5


def test_requests_that_fail_together_are_one_failure():
    ejections = Ejections()
    assert ejections.failed(KernelId("a"), 0.0)
    assert not ejections.failed(KernelId("a"), 4.9)
    assert ejections.until[KernelId("a")] == 5.0


def test_replicas_that_left_the_table_are_forgotten():
    ejections = Ejections()
    ejections.failed(KernelId("a"), 0.0)
    ejections.failed(KernelId("b"), 0.0)
    ejections.keep_only([KernelId("b")])
    assert list(ejections.until) == ["b"]


@pytest.mark.parametrize(
    ("failure", "so_far", "elapsed_s", "expected"),
    [
        (Failure.CONNECT, (), 0, True),
        (Failure.BUSY, (Failure.CONNECT,), 1, True),
        (Failure.CONNECT, (Failure.CONNECT, Failure.BUSY), 1, False),  # three replicas were asked
        (Failure.CONNECT, (), 10.5, False),  # too late
        (Failure.DISCONNECT, (), 0, True),
        (Failure.DISCONNECT, (Failure.DISCONNECT,), 0, False),  # it may be the request that kills them
        (Failure.DISCONNECT, (Failure.CONNECT,), 0, True),
        (Failure.SILENT, (), 0, False),
        (Failure.OUR_KEY, (), 0, False),
        (Failure.BROKEN, (), 0, False),
    ],
)
def test_another_attempt(failure, so_far, elapsed_s, expected):
    assert another(failure, so_far, elapsed_s) is expected
