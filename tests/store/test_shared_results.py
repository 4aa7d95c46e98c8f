"""Equal batch sessions on two GPUs: which ones run, which take a result, and what later sessions
reuse."""

from __future__ import annotations

from moorage.common.model.reasons import Reason
from moorage.common.model.status import Result, Status
from moorage.common.views.resources import SessionView
from moorage.manager.store import Store

from .conftest import FAILED, FakeAgent, schedule
from .test_reuse import DONE, SUCCEEDED, add, ends, reconcile, runs, show, shown

GPU = {"cpu": 1, "cuda.device": 1}


async def gpus_in_use(store: Store) -> list[str]:
    rows = await store.database.fetch(
        "SELECT device_id FROM agent_slots WHERE slot = 'cuda.device' AND used > 0"
    )
    return sorted(row["device_id"] for row in rows)


async def ask(store: Store, name: str, program: str) -> SessionView:
    return await add(store, name, command=[program], resources=GPU)


async def test_only_what_is_new_or_has_failed_runs_and_no_gpu_stays_taken(store: Store) -> None:
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    await ask(store, "before", "fifth")
    await ends(store, agent, await runs(store, agent, "before"), **DONE)

    await ask(store, "ir1", "first")
    first = await runs(store, agent, "ir1")
    await ask(store, "ir2", "second")
    await ends(store, agent, await runs(store, agent, "ir2"), **FAILED)
    ir3 = await ask(store, "ir3", "first")
    ir5 = await ask(store, "ir5", "fifth")
    ir4 = await ask(store, "ir4", "second")
    assert (ir3.adopted_from, ir4.adopted_from) == ((await show(store, "ir1")).id, None)
    assert (ir5.status, ir5.adopted_from) == (Status.TERMINATED, (await show(store, "before")).id)
    fourth = await runs(store, agent, "ir4")
    assert len(await gpus_in_use(store)) == 2, "of ir1 and ir4"
    await ends(store, agent, first, **DONE)
    await ends(store, agent, fourth, **DONE)

    assert await shown(store, "ir1", "ir3", "ir4", "ir5") == [SUCCEEDED] * 4
    assert await shown(store, "ir2") == [(Status.TERMINATED, Result.FAILED)]
    assert await gpus_in_use(store) == []

    # Each request succeeds with the result of the session that ran, and only that session is
    # charged.
    rows = await store.database.fetch(
        "SELECT name FROM sessions WHERE result = 'SUCCESS' AND adopted_from IS NULL ORDER BY name"
    )
    assert [row["name"] for row in rows] == ["before", "ir1", "ir4"]
    charged = await store.database.fetch(
        "SELECT DISTINCT s.name FROM ledger JOIN sessions s ON s.id::text = session_id"
    )
    assert {row["name"] for row in charged} == {"before", "ir1", "ir2", "ir4"}
    assert await store.integrity.check() == []


async def test_a_session_waits_for_those_that_it_names_and_not_for_equal_ones(store: Store) -> None:
    """An equal session's earlier failure says nothing about the named one."""
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    await ask(store, "failed", "embed")
    await ends(store, agent, await runs(store, agent, "failed"), **FAILED)
    await ask(store, "again", "embed")
    await ask(store, "shares", "embed")
    for name, on in (("classify", ["shares"]), ("report", ["failed"])):
        await add(store, name, reuse="never", command=[name], depends_on=on)

    await reconcile(store)
    ended = await show(store, "report")
    assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.DEPENDENCY_FAILED)
    assert (await show(store, "failed")).name in ended.detail
    await ends(store, agent, await runs(store, agent, "again"), **DONE)
    assert (await show(store, "classify")).status is Status.PENDING
    await runs(store, agent, "classify")


async def test_a_third_session_waits_for_one_of_two_gpus_and_gets_no_processor_instead(
    store: Store,
) -> None:
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    for name in ("one", "two", "three"):
        await ask(store, name, name)

    assert await schedule(store) == 2
    [waiting] = [
        v for n in ("one", "two", "three") if (v := await show(store, n)).status is Status.PENDING
    ]
    assert waiting.hold is not None
    assert waiting.hold.reason is Reason.INSUFFICIENT_RESOURCES
    assert len(await gpus_in_use(store)) == 2
