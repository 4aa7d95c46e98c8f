"""The session controller: changed sessions are reconciled at once, all others by scans."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, session_controller
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import FakeAgent, schedule


@pytest.mark.parametrize("scan_s", [0.0, 3600.0], ids=["with scans", "notifications only"])
async def test_changed_sessions_are_reconciled_by_the_next_run(
    store: Store, clock: StoreClock, monkeypatch: pytest.MonkeyPatch, scan_s: float
) -> None:
    """Includes RUNNING sessions, which only the less frequent scan for changes finds."""
    leader = Leader(store, clock)
    await leader.run_once()
    controller = session_controller.SessionController(store, leader, clock, 120)
    await controller.run_once()  # the only scan for changes in this test
    await store.database.fetch("DELETE FROM leases")  # ``schedule`` leads
    monkeypatch.setattr(session_controller, "SCAN_S", scan_s)
    monkeypatch.setattr(session_controller, "CHANGES_SCAN_S", 3600.0)
    monkeypatch.setattr(session_controller, "SWEEP_S", 3600.0)
    agent = FakeAgent(store)
    await agent.report()
    made = await store.sessions.create(
        Scope.system("t"), SessionSpec(command=["x"], resources={"cpu": 1})
    )
    assert await schedule(store) == 1

    for state, more, status in (
        (ObservedState.RUNNING, {}, Status.RUNNING),
        (ObservedState.EXITED, {"exit_code": 0, "reason": Reason.EXIT_ZERO}, Status.TERMINATED),
    ):
        agent.see(made.kernels[0].id, state, **more)
        await agent.report()
        await controller.run_once()
        assert (await store.sessions.get(Scope.system(), made.id)).status is status


async def test_settled_sessions_are_read_once_for_each_change(
    store: Store, clock: StoreClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session's kernels require no further action once it runs or has ended."""
    leader = Leader(store, clock)  # which does not lead: it neither scans nor sweeps
    controller = session_controller.SessionController(store, leader, clock, 120)
    agent = FakeAgent(store)
    await agent.report()
    made = await store.sessions.create(
        Scope.system("t"), SessionSpec(command=["x"], resources={"cpu": 1})
    )
    assert await schedule(store) == 1
    await controller.run_once()
    reads = 0
    unsettled = store.lifecycle.unsettled

    async def count(among: Collection[SessionId] | None = None) -> Any:
        nonlocal reads
        reads += 1
        return await unsettled(among)

    monkeypatch.setattr(store.lifecycle, "unsettled", count)
    for state, more, status in (
        (ObservedState.RUNNING, {}, Status.RUNNING),
        (ObservedState.EXITED, {"exit_code": 0, "reason": Reason.EXIT_ZERO}, Status.TERMINATED),
    ):
        reads = 0
        agent.see(made.kernels[0].id, state, **more)
        await agent.report()
        await controller.run_once()
        assert (await store.sessions.get(Scope.system(), made.id)).status is status
        await controller.run_once()
        assert reads == 1
