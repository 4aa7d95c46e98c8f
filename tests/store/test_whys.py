"""``why`` by what is in the database: who runs until when, what is waited for, and nothing is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fairlead.common.errors import NotFound
from fairlead.common.outlook import WhyView
from fairlead.common.spec import SessionSpec
from fairlead.common.status import ObservedState, Status
from fairlead.manager.store import Store

from .conftest import FakeAgent, schedule, settle


async def add(store: Store, name: str, gpus: int = 1, **more: object) -> None:
    base: dict[str, object] = {"command": ["x"], "resources": {"cuda.device": gpus}, "name": name}
    await store.create_session(SessionSpec.model_validate(base | more), actor="t")


async def runs(store: Store, agent: FakeAgent, name: str) -> None:
    await schedule(store)
    agent.see((await store.get_session(name)).kernels[-1].id, ObservedState.RUNNING)
    await agent.report()
    await settle(store)
    assert (await store.get_session(name)).status is Status.RUNNING


def unmet(view: WhyView) -> dict[str, str]:
    return {one.kind: one.text for one in view.conditions if not one.met}


async def test_it_says_when_what_runs_makes_room(store: Store) -> None:
    agent = FakeAgent(store, "gpu-03", gpus=4)
    await agent.report()
    await add(store, "train-7", 2, timeout_s=1200, stop_grace_s=0)
    await runs(store, agent, "train-7")
    await add(store, "big", 4)
    await add(store, "next", 4)

    view = await store.why("big")
    ends = (await store.get_session("train-7")).deadline_at
    assert ends is not None
    at = f"{ends:%H:%M} UTC"
    assert view.refusals == [
        f"needs 4 cuda.device; best agent gpu-03 has 2 free, 4 after session train-7 ends at about {at}"
    ]
    assert (view.status, view.position, view.waiting) == (Status.PENDING, 1, 2)
    assert view.blockers == ["train-7"]
    assert view.expected_start is not None
    assert abs(view.expected_start - ends) < timedelta(milliseconds=1)
    behind = await store.why("next")
    assert (behind.position, behind.expected_start) == (2, None)
    assert behind.basis.startswith("unknown: 1 session ahead with no known end")

    # A question changes nothing: the same session is asked about by the next pass as if nobody had asked.
    assert (await store.get_session("big")).hold is None
    await schedule(store)
    assert (await store.get_session("big")).status is Status.PENDING


async def test_an_endless_session_makes_it_unknown(store: Store) -> None:
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    await add(store, "model", 2)
    await runs(store, agent, "model")
    await add(store, "it")
    view = await store.why("it")
    assert view.expected_start is None
    assert view.basis == "unknown: 1 session where it could go, with no known end"


async def test_conditions_name_what_is_waited_for(store: Store) -> None:
    await FakeAgent(store).report()
    await add(store, "first")
    await add(store, "it", depends_on=["first"])
    assert unmet(await store.why("it")) == {"dependencies": "waits for first"}
    later = datetime.now(UTC) + timedelta(hours=3)
    await add(store, "later", starts_at=later)
    view = await store.why("later")
    assert unmet(view) == {"time": f"not before {later:%H:%M} UTC"}
    assert view.expected_start is not None
    assert abs(view.expected_start - later) < timedelta(seconds=1)


async def test_who_does_not_wait_is_told_what_it_is(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "it")
    assert (await store.why("it")).basis == "there is room now"
    await runs(store, agent, "it")
    view = await store.why("it")
    assert view.text.startswith("it does not wait: it is RUNNING")
    assert view.since == (await store.get_session("it")).status_since
    assert view.conditions == []


async def test_an_unknown_name_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.why("nobody")
