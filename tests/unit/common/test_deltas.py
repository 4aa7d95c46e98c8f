"""Deltas: the receiver follows the sender, and drift is detected."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.common.link.deltas import Delta, SyncSet

worlds = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)), min_size=1, max_size=12)


@given(worlds)
def test_receiver_follows_sender(states: list[dict[str, int]]) -> None:
    sender, receiver = SyncSet[str, int](), SyncSet[str, int]()
    sender.replace(states[0])
    receiver.replace(states[0])
    for state in states[1:]:
        before = sender.items()
        delta = sender.update(state)
        assert set(delta.changed) == {k for k, v in state.items() if before.get(k, -1) != v}
        assert receiver.apply(delta)
        assert receiver.items() == sender.items() == state


@given(worlds, st.data())
def test_next_delta_reveals_a_lost_one(states: list[dict[str, int]], data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, len(states) - 1))
    sender, receiver = SyncSet[str, int](), SyncSet[str, int]()
    for n, state in enumerate(states):
        delta = sender.update(state)
        if n != lost:
            agreed = receiver.apply(delta)
            assert agreed == (receiver.items() == state)


def test_digest_ignores_order_but_not_values() -> None:
    one, two = SyncSet[str, int](), SyncSet[str, int]()
    one.replace({"a": 1, "b": 2})
    two.replace({"b": 2, "a": 1})
    assert one.digest == two.digest
    two.apply(Delta({"a": 9}, frozenset(), 0))
    assert one.digest != two.digest
