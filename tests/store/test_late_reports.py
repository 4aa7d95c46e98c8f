"""A manager that was stopped goes on with a report of an agent that has attached to another one meanwhile."""

from __future__ import annotations

import pytest

from fairlead.common.spec import SessionSpec
from fairlead.common.status import ObservedState, Status
from fairlead.manager.store import Store

from .conftest import FakeAgent, schedule


@pytest.mark.xfail(strict=True, reason="the database does not know which stream speaks for an agent")
async def test_a_report_that_comes_late_takes_no_kernel_for_gone(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    late = agent.whole()
    made = await store.create_session(SessionSpec(command=["x"]), actor="t")
    await schedule(store)
    kernel = made.kernels[0].id
    agent.see(kernel, ObservedState.CREATING)
    await agent.report()
    # From before the kernel, on a stream to a manager that sent none of the orders which name it.
    await store.observe(late, None)
    assert (await store.get_session(made.id)).kernels[0].status is Status.CREATING
