"""Two agents under one id: who is known, who waits, and when the newcomer is taken in."""

from __future__ import annotations

import pytest

from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import AgentStatus, ObservedState, Status
from moorage.manager.store import ReportRefused, Store

from .conftest import FakeAgent, schedule, settle

SUSPECT_AFTER_S, LOST_GRACE_S = 15.0, 120.0


async def two(store: Store) -> tuple[FakeAgent, FakeAgent, str]:
    """One that is known and runs something, another with its id, and the session."""
    known = FakeAgent(store, stream=2**40, identity="known")
    await known.report()
    made = await store.sessions.create(SessionSpec(type="interactive", command=["x"]), actor="t")
    await schedule(store)
    known.see(made.kernels[0].id, ObservedState.RUNNING, port=21000)
    await known.report()
    await settle(store)
    other = FakeAgent(store, stream=1, identity="newcomer", incarnation="other", accepted=frozenset())
    return known, other, made.id


async def silent_for(store: Store, seconds: float) -> None:
    sql = "UPDATE agents SET last_seen = now() - make_interval(secs => $1)"
    await store.database.fetch(sql, seconds)
    await store.agents.mark_silent(SUSPECT_AFTER_S, LOST_GRACE_S)
    await settle(store)


async def refused(agent: FakeAgent) -> str:
    with pytest.raises(ReportRefused) as caught:
        await agent.report()
    assert not caught.value.passing
    return str(caught.value)


async def test_a_newcomer_is_refused_while_the_known_one_is_not_lost(store: Store) -> None:
    known, newcomer, session = await two(store)
    words = await refused(newcomer)
    for part in ("'node-1'", "127.0.0.1", "agent.id", "moorage agents forget node-1"):
        assert part in words
    await silent_for(store, SUSPECT_AFTER_S + 5)
    assert (await store.agents.get("node-1")).status is AgentStatus.SUSPECT
    assert await refused(newcomer) == words, "told in the same words, so that it is said once"
    assert (await store.sessions.get(session)).status is Status.RUNNING
    await known.report()
    assert (await store.agents.get("node-1")).status is AgentStatus.ALIVE


async def test_a_newcomer_is_taken_in_when_the_known_one_is_lost_and_the_known_one_is_not_any_more(
    store: Store,
) -> None:
    known, newcomer, session = await two(store)
    await silent_for(store, SUSPECT_AFTER_S + LOST_GRACE_S + 5)
    view = await store.sessions.get(session)
    assert (view.status, view.reason) == (Status.ERROR, Reason.AGENT_LOST)
    assert await newcomer.report() == 0
    assert (await store.agents.get("node-1")).status is AgentStatus.ALIVE
    assert sum(o.used for o in (await store.agents.get("node-1")).offers) == 0, "it has none of its kernels"
    known.dial(store)
    await refused(known)


async def test_a_newcomer_gets_no_orders_for_kernels_that_run_elsewhere(store: Store) -> None:
    """LOST is written first, the kernels are given up after that: in between it is still too early."""
    _, newcomer, _ = await two(store)
    await store.database.fetch("UPDATE agents SET status = 'LOST'")
    await refused(newcomer)


async def test_who_tells_no_identity_is_heard_and_who_comes_to_tell_one_is_known_by_it(store: Store) -> None:
    agent = FakeAgent(store, stream=1)
    await agent.report()
    agent.identity = "mine"
    agent.dial(store)
    await agent.report()
    await refused(FakeAgent(store, stream=2**40, identity="another", incarnation="other"))


async def test_a_forgotten_agent_s_id_is_free_at_once(store: Store) -> None:
    _, newcomer, session = await two(store)
    with pytest.raises(Conflict, match="ALIVE"):
        await store.agents.forget("node-1", actor="key:admin")
    await silent_for(store, SUSPECT_AFTER_S + 5)
    assert (await store.agents.forget("node-1", actor="key:admin")).id == "node-1"
    assert await store.agents.all() == []
    with pytest.raises(NotFound):
        await store.agents.forget("node-1", actor="key:admin")
    await settle(store)
    view = await store.sessions.get(session)
    assert (view.status, view.reason) == (Status.ERROR, Reason.AGENT_LOST)
    await newcomer.report()
    assert [a.status for a in await store.agents.all()] == [AgentStatus.ALIVE]
