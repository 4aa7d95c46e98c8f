"""Canaries: the share of requests that their replicas get."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flow_playbook import Playbook, target
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.proxy.core.affinity import key_of
from moorage.proxy.core.canary import share

OLD = (target("a"), target("b"))
NEW = (replace(target("n"), canary=True),)


@examples(50)
@given(st.integers(1, 99))
def test_the_share_is_exact(percent: int) -> None:
    counts = Counter(share((*OLD, *NEW), percent, draw)[0].canary for draw in range(100))
    assert counts[True] == percent


@examples(50)
@given(st.integers(1, 99), st.integers(0, 99))
def test_all_take_requests_where_there_is_none_of_these(percent: int, draw: int) -> None:
    assert set(share(OLD, percent, draw)) == set(OLD)
    draining = tuple(replace(one, draining=True) for one in OLD)
    assert NEW[0] in share((*draining, *NEW), percent, draw)


def test_a_session_stays_with_its_revision() -> None:
    book = Playbook("a b n")
    table = book.router.table
    assert table is not None
    table.models["tiny"] = replace(table.models["tiny"], targets=(*OLD, *NEW), canary=30)
    found: Counter[bool] = Counter()
    for session in range(400):
        key = key_of(f"s{session}", {})
        picks = {book.router.pick_target("tiny", (), 0.0, key) for _ in range(3)}
        assert len(picks) == 1
        found[picks == set(NEW)] += 1

    assert 80 < found[True] < 160
