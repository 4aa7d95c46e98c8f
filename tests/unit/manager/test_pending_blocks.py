"""Snapshots of the pending sessions: their content and cost, and that they never change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.ids import KernelId, SessionId
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.store.scheduling import pending_blocks
from moorage.manager.store.scheduling.pending_blocks import PendingBlocks


def session(number: int, priority: int = 10) -> Pending:
    name = f"{number:05}"
    return Pending(
        SessionId(name),
        KernelId(name),
        revision=1,
        priority=priority,
        created=number,
        retries=0,
        runtime="process",
        engine="custom",
        slots={"cpu": 1},
    )


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=60), st.integers(1, 5))
def test_a_snapshot_holds_what_was_there_and_never_changes(
    steps: list[tuple[int, int]], size: int
) -> None:
    """A step adds session N with a priority from 1 to 3, or removes it. Some steps are followed by
    a snapshot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending_blocks, "BLOCK", size)
        blocks = PendingBlocks()
        model = dict[SessionId, Pending]()
        taken = []
        for at, (number, priority) in enumerate(steps):
            one = session(number, priority)
            if priority:
                blocks.put(one)
                model[one.session_id] = one
            elif model.pop(one.session_id, None) is not None:
                blocks.remove(one.session_id)

            if at % 3 == 0:
                taken.append((blocks.snapshot(), dict(model)))

        taken.append((blocks.snapshot(), dict(model)))
        for snapshot, then in taken:
            assert len(snapshot) == len(then)
            assert {item.session_id: item for item in snapshot} == then
            assert len(list(snapshot)) == len(then)
            assert snapshot == tuple(snapshot) == snapshot
            assert all(snapshot[n] is item for n, item in enumerate(snapshot))


def test_a_change_copies_one_block_whatever_the_number_of_sessions() -> None:
    blocks = PendingBlocks()
    for number in range(5 * pending_blocks.BLOCK):
        blocks.put(session(number))

    before = blocks.snapshot()
    assert blocks.snapshot() is before
    blocks.put(session(7, 90))
    blocks.remove(session(3).session_id)
    after = blocks.snapshot()
    kept = [one for one in after.blocks if any(one is other for other in before.blocks)]
    assert (len(before.blocks), len(after.blocks), len(kept)) == (5, 5, 4)


def test_room_is_used_again() -> None:
    blocks = PendingBlocks()
    for turn in range(4):
        for number in range(pending_blocks.BLOCK + 1):
            blocks.put(session(turn * 10_000 + number))
        assert len(blocks.snapshot().blocks) == 2
        for number in range(pending_blocks.BLOCK + 1):
            blocks.remove(session(turn * 10_000 + number).session_id)
        assert list(blocks.snapshot()) == []
