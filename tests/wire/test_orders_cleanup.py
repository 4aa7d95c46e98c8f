"""Removal of ended kernels from the orders soon after the agent reported them, so that it can
forget them. No notification announces the removal, because there is nothing to start or stop, and
it does not wait for the next poll."""

from __future__ import annotations

import pytest
from manager_harness import attach, client, manager, until

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager import Manager
from moorage.manager.rpc import orders_polling
from moorage.sdk import Client

__all__ = ["client", "manager"]  # fixtures


@pytest.fixture
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls the orders once an hour, so that no poll happens during the test."""
    monkeypatch.setattr(orders_polling, "POLL_S", 3600.0)


@pytest.mark.usefixtures("rare_polls")
async def test_ended_kernel_is_removed_from_the_orders_without_a_poll(
    manager: Manager, client: Client
) -> None:
    async with attach(manager) as agent:
        for n in range(2):  # the second time proves that the removal is scheduled again
            name = f"job-{n}"
            await client.sessions.create(
                SessionSpec(name=name, command=["true"], resources={"cpu": 1})
            )
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
