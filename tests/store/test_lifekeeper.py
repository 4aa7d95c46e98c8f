"""When the lifekeeper looks at what: everything now and then, what it was told of at once."""

from __future__ import annotations

import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.loops import session_controller
from moorage.manager.store import Store

from .conftest import FakeAgent, schedule


@pytest.mark.parametrize("look_s", [0.0, 3600.0], ids=["everything is looked at", "only what it was told of"])
async def test_what_it_was_told_of_is_judged_at_the_next_tick(
    store: Store, monkeypatch: pytest.MonkeyPatch, look_s: float
) -> None:
    """Also of sessions that run, which a look at everything leaves to the rare deep one."""
    keeper = session_controller.Lifekeeper(store, SystemClock(), 120)
    await keeper._tick()  # a deep look, of which there is no second one here
    monkeypatch.setattr(session_controller, "LOOK_S", look_s)
    monkeypatch.setattr(session_controller, "LOOK_DEEP_S", 3600.0)
    agent = FakeAgent(store)
    await agent.report()
    made = await store.create_session(SessionSpec(command=["x"], resources={"cpu": 1}), actor="t")
    assert await schedule(store) == 1
    for state, more, status in (
        (ObservedState.RUNNING, {}, Status.RUNNING),
        (ObservedState.EXITED, {"exit_code": 0, "reason": Reason.EXIT_ZERO}, Status.TERMINATED),
    ):
        agent.see(made.kernels[0].id, state, **more)
        await agent.report()
        await keeper._tick()
        assert (await store.get_session(made.id)).status is status
