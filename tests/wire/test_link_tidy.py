"""What an agent reported ended is taken off its orders soon, so that it may forget it: without a notify, as
nothing has to be begun or stopped for it, and long before all orders are looked at again."""

from __future__ import annotations

import pytest
from manager_harness import attach, client, manager, until

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager import Manager
from moorage.manager.rpc import agent_link
from moorage.sdk import Client

__all__ = ["client", "manager"]  # fixtures


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """All orders are looked at once an hour, so that no look is in time for the test."""
    monkeypatch.setattr(agent_link, "POLL_S", 3600.0)


@pytest.mark.usefixtures("rare_looks")
async def test_what_ended_is_taken_off_the_orders_without_a_poll(manager: Manager, client: Client) -> None:
    async with attach(manager) as agent:
        for n in range(2):  # the second time shows that it is seen to again
            name = f"job-{n}"
            await client.create_session(SessionSpec(name=name, command=["true"], resources={"cpu": 1}))
            await agent.orders_with(1)
            agent.see(ObservedState.RUNNING)
            await agent.report()
            await until(client, name, lambda v: v.status is Status.RUNNING)
            agent.see(ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
            await agent.report()
            await until(client, name, lambda v: v.status is Status.TERMINATED)
            assert (await agent.orders_with(0)).kernels == ()
            agent.seen.clear()
            await agent.report()
