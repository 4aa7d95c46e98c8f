"""Many that wait: a pass reads what has changed of them, and tells all of them why, if not at once."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.common.spec import SessionSpec
from fairlead.common.status import Status
from fairlead.manager.scheduling import Policy, plan
from fairlead.manager.store import Store, planning, waiting

from .conftest import FakeAgent, schedule


async def add(store: Store, name: str, **more: object) -> None:
    spec = SessionSpec.model_validate(
        {"command": ["x"], "resources": {"cuda.device": 1}, "name": name} | more
    )
    await store.create_session(spec, actor="t")


async def names(store: Store) -> list[str]:
    """Those of a snapshot, in its order, with what may change of them."""
    pending = (await store.snapshot("default")).pending
    views = {v.id: v for v in (await store.list_sessions(limit=500)).items}
    return [views[p.session_id].name for p in pending]


async def test_a_pass_sees_what_a_whole_look_sees(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FEW", 3)
    await FakeAgent(store, gpus=2).report()
    for n in range(6):
        await add(store, f"s{n}")
    await add(store, "after", depends_on=["s0"])
    other = waiting.Waiting(store._db)
    for change in (
        None,
        lambda: add(store, "late"),
        lambda: store.stop_session("s3", actor="t"),
        lambda: schedule(store),
        lambda: schedule(store),  # counts a refusal of those that wait
        lambda: store.stop_session("s0", actor="t"),
        lambda: add(store, "later", starts_at="2100-01-01T00:00:00Z"),
    ):
        if change is not None:
            await change()
        seen = (await store.snapshot("default")).pending
        other._known.clear()
        assert list(seen) == await other.of("default")
    left = ["s2", "s4", "s5", "after", "late"]
    assert await names(store) == left
    assert {p.retries for p in seen if p.dependencies == "met"} == {1}


async def test_all_are_told_why_however_many(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_NOTES", 4)
    await asyncio.gather(*(add(store, f"s{n}") for n in range(10)))
    snapshot = await store.snapshot("default")
    holds = plan(snapshot, Policy()).holds
    await store.note_holds(snapshot, holds)
    told = [4]
    for _ in range(3):
        # A planner that keeps what it said tells nothing again.
        snapshot = await store.snapshot("default")
        await store.note_holds(snapshot, [])
        views = (await store.list_sessions(statuses=frozenset({Status.PENDING}))).items
        told.append(sum(view.hold is not None for view in views))
    assert told == [4, 8, 10, 10]
