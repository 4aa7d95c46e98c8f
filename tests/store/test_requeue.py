"""Requeueing of failed batch sessions after a backoff, and deadlines that survive restarts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Result, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FAILED, RUNNING, FakeAgent, open_store, reconcile_all, schedule, stop

SYSTEM = Scope.system()


def job(**more: object) -> SessionSpec:
    base: dict[str, object] = {"name": "job", "command": ["x"], "resources": {"cpu": 1}}
    return SessionSpec.model_validate(base | more)


async def run(store: Store, agent: FakeAgent) -> str:
    """Place and run the newest attempt. Returns its kernel."""
    assert await schedule(store) == 1
    kernel = (await store.sessions.get(SYSTEM, "job")).kernels[-1].id
    agent.see(kernel, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "job")).status is Status.RUNNING
    return kernel


async def end(store: Store, agent: FakeAgent, kernel: str, **more: object) -> None:
    agent.see(kernel, ObservedState.EXITED, **more)
    await agent.report()
    await reconcile_all(store)


async def pass_time(store: Store) -> None:
    """End the backoff. Since Postgres's clock decides, the time at which the backoff ends is moved
    instead of the clock."""
    await store.database.fetch(
        "UPDATE sessions SET not_before = now() WHERE not_before IS NOT NULL"
    )


async def test_failed_program_is_requeued_on_the_only_agent_after_backoff(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(
        Scope.system("test"), job(retries=2, retry_backoff_s=30, max_attempts=1)
    )
    kernels = [await run(store, agent)]
    await end(store, agent, kernels[0], **FAILED)
    view = await store.sessions.get(SYSTEM, "job")
    assert (view.status, view.requeues, view.attempt) == (Status.PENDING, 1, 2)
    assert view.not_before is not None
    assert 25 < (view.not_before - view.status_since).total_seconds() <= 30
    assert view.hold is not None
    assert (view.hold.reason, "not before" in view.hold.text) == (Reason.BACKOFF, True)
    assert (await store.agents.get("node-1")).offers[0].used == 0, "a pause holds no resources"
    assert await schedule(store) == 0, "the pause is kept"
    assert await store.groups.with_pending() == [], "and costs no pass"

    await pass_time(store)
    kernels.append(await run(store, agent))
    await end(store, agent, kernels[1], exit_code=-9, reason=Reason.KILLED)
    assert (await store.sessions.get(SYSTEM, "job")).requeues == 2
    await pass_time(store)
    kernels.append(await run(store, agent))
    assert len(set(kernels)) == 3, "each run is a kernel of its own"
    await end(store, agent, kernels[2], **FAILED)
    view = await store.sessions.get(SYSTEM, "job")
    assert (view.status, view.result, view.attempt) == (Status.TERMINATED, Result.FAILED, 3)
    assert [k.exit_code for k in view.kernels] == [1, -9, 1]
    story = [e.event for e in (await store.sessions.history(SYSTEM, "job")).items]
    assert story == [
        "created",
        "placed",
        "ready",
        "requeue",
        "placed",
        "ready",
        "requeue",
        "placed",
        "ready",
        "ended",
    ]
    assert (await store.agents.get("node-1")).offers[0].used == 0


async def test_requeued_session_waits_anew(store: Store) -> None:
    """Sessions that overtook the first run do not count toward holding agents for the next run."""
    agent = FakeAgent(store)
    await agent.report()
    made = await store.sessions.create(Scope.system("test"), job(retries=1))
    await store.database.fetch(
        "UPDATE sessions SET bypassed = 7, retries = 3 WHERE id = $1", made.id
    )
    kernel = await run(store, agent)
    await end(store, agent, kernel, **FAILED)
    await pass_time(store)
    (waiting,) = (await store.scheduling.snapshot("default")).pending
    assert (waiting.session_id, waiting.bypassed, waiting.retries) == (made.id, 0, 0)
    assert await store.database.fetch("SELECT bypassed FROM sessions") == [(0,)]


async def test_successful_retry_is_a_success(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(Scope.system("test"), job(retries=1))
    await end(store, agent, await run(store, agent), **FAILED)
    await pass_time(store)
    await end(store, agent, await run(store, agent), exit_code=0, reason=Reason.EXIT_ZERO)
    view = await store.sessions.get(SYSTEM, "job")
    assert (view.result, view.reason, view.not_before) == (Result.SUCCESS, Reason.EXIT_ZERO, None)


async def test_program_of_a_lost_agent_is_requeued(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(Scope.system("test"), job(retries=1, retry_backoff_s=1))
    kernels = [await run(store, agent)]
    agent.seen.clear()  # the node was restarted: the agent is back, its kernel is not
    agent.incarnation = "incarnation-2"
    agent.reconnect(store)
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "job")
    assert (view.status, view.reason, view.requeues) == (Status.PENDING, Reason.KERNEL_GONE, 1)
    assert (await store.agents.get("node-1")).offers[0].used == 0
    await pass_time(store)
    kernels.append(await run(store, agent))
    assert kernels[0] != kernels[1]
    agent.seen.clear()
    await agent.report()
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "job")
    assert (view.status, view.reason, view.requeues) == (Status.ERROR, Reason.KERNEL_GONE, 1)
    assert view.result is Result.FAILED


async def test_stop_during_backoff_ends_the_session(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(Scope.system("test"), job(retries=5))
    await end(store, agent, await run(store, agent), **FAILED)
    view = await stop(store, "job", actor="me")
    assert (view.status, view.reason, view.not_before) == (
        Status.CANCELLED,
        Reason.USER_REQUESTED,
        None,
    )
    await pass_time(store)
    assert await schedule(store) == 0


async def test_agents_are_avoided_only_for_failed_starts_of_this_run(store: Store) -> None:
    """A failed start on node-1 in the first run does not exclude it from the second."""
    agents = {name: FakeAgent(store, name) for name in ("node-1", "node-2")}
    for agent in agents.values():
        await agent.report()

    await store.sessions.create(Scope.system("test"), job(retries=1))
    for reason in (Reason.PORT_TAKEN, Reason.EXIT_NONZERO):
        assert await schedule(store) == 1
        kernel = (await store.sessions.get(SYSTEM, "job")).kernels[-1]
        await end(store, agents[str(kernel.agent_id)], kernel.id, reason=reason)

    view = await store.sessions.get(SYSTEM, "job")
    assert (view.status, view.attempt, view.requeues) == (Status.PENDING, 3, 1)
    await pass_time(store)
    ((_, _policy),) = await store.groups.with_pending()
    assert (await store.scheduling.snapshot("default")).pending[0].avoid == frozenset()


@pytest.mark.parametrize(
    ("field", "value"),
    [("retries", 21), ("retries", -1), ("retry_backoff_s", 0), ("retry_backoff_s", 301)],
)
def test_invalid_retries_are_rejected(field: str, value: int) -> None:
    with pytest.raises(ValidationError, match=field):
        job(**{field: value})


def test_only_batch_sessions_have_retries() -> None:
    with pytest.raises(ValidationError, match="batch"):
        job(type="interactive", retries=1)


async def test_timeout_survives_restarts_of_manager_and_agent(
    store: Store, migrated_database: str
) -> None:
    """The deadline is in the database, so neither a new manager nor a new agent restarts it."""
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(Scope.system("test"), job(timeout_s=3600.0))
    kernel = await run(store, agent)
    deadline = (await store.sessions.get(SYSTEM, "job")).deadline_at
    assert deadline is not None

    async with open_store(migrated_database) as second:
        again = FakeAgent(second, seen=agent.seen, incarnation="incarnation-2")
        await again.report()
        await reconcile_all(second)
        view = await second.sessions.get(SYSTEM, "job")
        assert (view.status, view.deadline_at) == (Status.RUNNING, deadline)
        await second.database.fetch(
            "UPDATE sessions SET deadline_at = deadline_at - interval '1 h'"
        )
        await reconcile_all(second)
        view = await second.sessions.get(SYSTEM, "job")
        assert (view.status, view.reason) == (Status.TERMINATING, Reason.TIMEOUT)
        await end(second, again, kernel, exit_code=-15)
        view = await second.sessions.get(SYSTEM, "job")
        assert (view.status, view.result, view.reason) == (
            Status.TERMINATED,
            Result.FAILED,
            Reason.TIMEOUT,
        )


async def test_interactive_session_runs_until_stopped_or_its_maximum_lifetime(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(Scope.system("test"), job(type="interactive"))
    kernel = await run(store, agent)
    assert (await store.sessions.get(SYSTEM, "job")).deadline_at is None, (
        "nothing ends it by itself"
    )
    await stop(store, "job", actor="me")
    await end(store, agent, kernel, exit_code=-15)
    assert (await store.sessions.get(SYSTEM, "job")).status is Status.TERMINATED

    await store.sessions.create(Scope.system("test"), job(type="interactive", max_lifetime_s=3600))
    kernel = await run(store, agent)
    assert (await store.sessions.get(SYSTEM, "job")).deadline_at is not None
    await store.database.fetch("UPDATE sessions SET deadline_at = now() WHERE status = 'RUNNING'")
    await reconcile_all(store)
    await end(store, agent, kernel, exit_code=-15)
    view = await store.sessions.get(SYSTEM, "job")
    assert (view.status, view.reason) == (Status.TERMINATED, Reason.MAX_LIFETIME), (
        "an end, no error"
    )
