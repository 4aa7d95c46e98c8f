"""Two agents with the same id: which one is accepted, and when another identity may replace the
known one."""

from __future__ import annotations

import pytest

from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import AgentStatus, ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.store import ReportRefused, Store

from .conftest import FakeAgent, mark_silent, reconcile_all, schedule

SYSTEM = Scope.system()


async def two(store: Store) -> tuple[FakeAgent, FakeAgent, str]:
    """A known agent with a running session, another agent with the same id, and the session."""
    known = FakeAgent(store, stream=2**40, identity="known")
    await known.report()
    made = await store.sessions.create(
        Scope.system("t"), SessionSpec(type="interactive", command=["x"])
    )
    await schedule(store)
    known.see(made.kernels[0].id, ObservedState.RUNNING, port=21000)
    await known.report()
    await reconcile_all(store)
    other = FakeAgent(store, stream=1, identity="newcomer", incarnation="other", confirms=True)

    return known, other, made.id


async def refused(agent: FakeAgent) -> str:
    with pytest.raises(ReportRefused) as caught:
        await agent.report()
    assert not caught.value.passing
    return str(caught.value)


async def test_other_identity_is_refused_until_the_agent_is_lost(store: Store) -> None:
    known, newcomer, session = await two(store)
    words = await refused(newcomer)
    for part in ("'node-1'", "127.0.0.1", "agent.id", "moorage agents forget node-1 --destroyed"):
        assert part in words

    await mark_silent(store, lost=False)
    assert (await store.agents.get("node-1")).status is AgentStatus.SUSPECT
    assert await refused(newcomer) == words, "told in the same words, so that it is said once"
    assert (await store.sessions.get(SYSTEM, session)).status is Status.RUNNING
    await known.report()
    assert (await store.agents.get("node-1")).status is AgentStatus.ALIVE


async def test_other_identity_replaces_a_lost_agent_without_kernels(store: Store) -> None:
    known = FakeAgent(store, stream=2**40, identity="known")
    await known.report()
    newcomer = FakeAgent(store, stream=1, identity="newcomer", incarnation="other", confirms=True)
    await mark_silent(store)
    await reconcile_all(store)
    assert await newcomer.report() == 0
    assert (await store.agents.get("node-1")).status is AgentStatus.ALIVE
    known.reconnect(store)
    await refused(known)


async def test_other_identity_is_refused_while_kernels_of_the_known_agent_may_run(
    store: Store,
) -> None:
    """The other agent cannot report that the kernels have ended, because they may run on another
    machine."""
    _, newcomer, session = await two(store)
    await mark_silent(store)
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, session)
    assert (view.status, view.reason) == (Status.ERROR, Reason.AGENT_LOST)
    await refused(newcomer)
    await store.agents.forget("node-1", actor="root", destroyed=True)
    assert await newcomer.report() == 0
    assert sum(o.used for o in (await store.agents.get("node-1")).offers) == 0


async def test_agent_without_identity_is_accepted_and_may_adopt_one(store: Store) -> None:
    agent = FakeAgent(store, stream=1)
    await agent.report()
    agent.identity = "mine"
    agent.reconnect(store)
    await agent.report()
    await refused(FakeAgent(store, stream=2**40, identity="another", incarnation="other"))


async def test_id_of_a_forgotten_agent_is_free_at_once(store: Store) -> None:
    _, newcomer, session = await two(store)
    with pytest.raises(Conflict, match="ALIVE"):
        await store.agents.forget("node-1", actor="key:admin")

    await mark_silent(store, lost=False)
    with pytest.raises(Conflict, match="1 kernels that are not known to have ended") as caught:
        await store.agents.forget("node-1", actor="key:admin")

    assert "--destroyed" in caught.value.next_step
    forgotten = await store.agents.forget("node-1", actor="key:admin", destroyed=True)
    assert (forgotten.id, forgotten.ended_kernels, forgotten.ended_sessions) == (
        "node-1",
        1,
        [session],
    )
    held = {
        offer.slot: offer.used for offer in forgotten.offers if offer.used and not offer.device_id
    }
    assert forgotten.released == held != {}
    assert (await store.agents.page()).items == []
    with pytest.raises(NotFound):
        await store.agents.forget("node-1", actor="key:admin")

    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, session)
    assert (view.status, view.reason) == (Status.ERROR, Reason.AGENT_LOST)
    await newcomer.report()
    assert [a.status for a in (await store.agents.page()).items] == [AgentStatus.ALIVE]
