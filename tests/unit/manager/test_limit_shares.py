"""Dividing limits among proxies: the shares never exceed the limit, and no proxy starves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.link.proxy_messages import LimitNeed
from moorage.manager.serving.limit_shares import SHARE_S, Holding, StoredShares, divide, share_of
from moorage.manager.serving.routes import reads_priority


def test_only_proxy_has_the_whole_limit():
    assert divide(100, 0, 13, [], proxies=1) == 100
    assert divide(100, 100, 100, [], proxies=1) == 100
    assert divide(0, 0, 0, [], proxies=1) == 0


def test_what_nobody_wants_is_divided():
    assert divide(100, 0, 20, [], proxies=2) == 60
    assert divide(100, 30, 43, [Holding(10, 10)], proxies=2) == 43 + 47 // 2, (
        "it may have 50, but wants 10"
    )


def test_equal_parts_for_all_that_want_them():
    assert divide(100, 20, 100, [Holding(0, 100)], proxies=2) == 50
    assert divide(100, 70, 100, [Holding(0, 100)], proxies=2) == 70, (
        "what was granted stays granted"
    )
    assert divide(100, 0, 100, [Holding(70, 100)], proxies=2) == 30


def test_share_that_shrinks_counts_until_its_proxy_holds_less():
    other = {"held": [0, 0, 0], "wanted": [100, 0, 0], "used": [0, 0, 0], "until": 10.0}
    need = LimitNeed("key/a", limit_requests=100, wanted_requests=10, held_requests=100)
    share, stored = share_of(need, "a", StoredShares("key/a", 0, {"b": other}, 1.0), 2)
    assert share.requests < 100
    assert stored.shares["a"]["held"][0] == 100


class World:
    """Proxies that grant from their shares, in seconds, and a manager."""

    def __init__(self, limit: int, proxies: int) -> None:
        self.limit = limit
        self.shares = [0] * proxies
        self.granted: list[list[tuple[int, int]]] = [[] for _ in range(proxies)]
        self.stored = StoredShares("key/a", 0, {}, 0.0)
        self.now = 0

    def used(self, proxy: int) -> int:
        return sum(n for at, n in self.granted[proxy] if at > self.now - 60)

    def grant(self, proxy: int, wanted: int) -> None:
        n = max(0, min(wanted, self.shares[proxy] - self.used(proxy)))
        self.granted[proxy].append((self.now, n))

    def ask(self, proxy: int, wanted: int) -> int:
        used = self.used(proxy)
        need = LimitNeed(
            "key/a",
            limit_requests=self.limit,
            used_requests=used,
            wanted_requests=min(self.limit, used + wanted),
            held_requests=self.shares[proxy],
        )
        stored = StoredShares("key/a", 0, self.stored.shares, float(self.now))
        share, self.stored = share_of(need, str(proxy), stored, len(self.shares))

        return share.requests


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 30), st.booleans()), max_size=80
)


@examples(60)
@given(st.integers(0, 40), st.integers(1, 4), STEPS)
def test_proxies_together_never_exceed_the_limit(limit: int, proxies: int, steps: Sequence[Any]):
    world = World(limit, proxies)
    for number, seconds, wanted, answers_late in steps:
        number %= proxies
        world.now += seconds
        for each in range(proxies):  # no share lapses
            world.shares[each] = world.ask(each, 0 if each != number else wanted)

        share = world.ask(number, wanted)
        if answers_late:
            world.grant(number, wanted)

        world.shares[number] = share
        world.grant(number, wanted)
        assert sum(world.used(each) for each in range(proxies)) <= limit


def test_proxy_that_comes_later_gets_its_part_within_a_minute():
    world = World(60, 2)
    world.shares[0] = world.ask(0, 60)
    for second in range(140):
        world.now = second
        for proxy in (0, 1) if second > 60 else (0,):
            world.shares[proxy] = world.ask(proxy, 60)
            world.grant(proxy, 60)
    assert world.used(0) <= 31
    assert world.used(1) >= 29


def test_share_of_a_proxy_that_is_gone_is_free_again():
    world = World(60, 2)
    world.shares[0] = world.ask(0, 60)
    assert world.ask(1, 60) == 0
    world.now = int(SHARE_S) + 1
    assert world.ask(1, 60) == 60


@pytest.mark.parametrize(
    ("engine", "args", "reads"),
    [
        ("vllm", ["--scheduling-policy", "priority"], True),
        ("vllm", ["--max-model-len=8", "--scheduling_policy=priority"], True),
        ("vllm", ["--scheduling-policy=fcfs"], False),
        ("vllm", ["--scheduling-policy"], False),
        ("vllm", [], False),
        ("custom", ["--scheduling-policy=priority"], False),
    ],
)
def test_engines_that_read_priorities(engine: str, args: list[str], reads: bool):
    assert reads_priority(engine, args) is reads
