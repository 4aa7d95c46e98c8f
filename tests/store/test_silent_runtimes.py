"""Runtimes whose kernels an agent has not completely listed, and how long these kernels tolerate
its silence."""

from __future__ import annotations

import pytest

from moorage.common.link.messages import RuntimeState
from moorage.common.model.ids import KernelId
from moorage.common.model.status import Status
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FakeAgent, mark_silent, reconcile_all
from .test_session_lifecycle import started, used

LISTED = RuntimeState("process")
UNLISTED = RuntimeState("process", listed=False)


@pytest.mark.parametrize(
    ("states", "gone"),
    [
        ((), True),  # an agent of an earlier release
        ((LISTED,), True),
        ((RuntimeState("docker", listed=False), LISTED), True),
        ((UNLISTED,), False),
        ((RuntimeState("docker"),), False),  # it no longer has the runtime
    ],
)
async def test_absence_counts_for_listed_runtimes_only(
    store: Store, states: tuple[RuntimeState, ...], gone: bool
) -> None:
    agent = FakeAgent(store, stream=1, runtime_states=states)
    kernel = await started(store, agent, type="interactive")
    agent.seen.pop(KernelId(kernel))  # its checkpoint entry is unreadable
    agent.reconnect(store)
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(Scope.system(), "s")
    assert view.status is (Status.ERROR if gone else Status.RUNNING)
    assert (await used(store) == {}) is gone

    if not gone:
        agent.runtime_states = (LISTED,)
        agent.reconnect(store)
        await agent.report()
        await reconcile_all(store)
        assert (await store.sessions.get(Scope.system(), "s")).status is Status.ERROR


async def test_devices_of_a_given_up_kernel_wait_for_its_runtime(store: Store) -> None:
    agent = FakeAgent(store, stream=1, runtime_states=(UNLISTED,))
    kernel = await started(store, agent, type="interactive")
    await mark_silent(store)
    await reconcile_all(store)
    agent.seen.pop(KernelId(kernel))
    agent.reconnect(store)
    await agent.report()
    assert await used(store) == {"cpu": 1000, "cuda.device": 1000}


async def test_grace_period_is_the_longest_of_the_runtimes_in_use(store: Store) -> None:
    states = (
        RuntimeState("process", silence_grace_s=86_400.0),
        RuntimeState("docker", silence_grace_s=9e6),
    )
    agent = FakeAgent(store, runtime_states=states)
    idle = FakeAgent(store, "idle", runtime_states=states)
    await started(store, agent, type="interactive")
    await idle.report()
    await mark_silent(store, lost=False)
    assert {one.agent_id: one.grace_s for one in await store.agents.contacts(0.0)} == {
        "node-1": 86_400,
        "idle": 0,
    }
