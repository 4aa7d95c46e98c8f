"""Qualities of service: stored with constraints, applied when a session is created, by every
scheduling pass, and by the ledger."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.qos import QosOptions
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, Scheduler
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent
from .tenancy_harness import Api, serve
from .test_group_limits import add, limit, placed, refusals, tick
from .test_ledger import end, move_back, run, used

SYSTEM = Scope.system("t")
ANN = Owner("ann", "vision")
BOB = Owner("bob", "vision")
SUE = Owner("sue", "speech")
PROGRAM: dict[str, Any] = {"command": ["x"]}

pytestmark = pytest.mark.usefixtures("owners")


async def put(store: Store, name: str = "debug", **options: object) -> None:
    await store.qos.put(SYSTEM, name, QosOptions.model_validate(options))


async def submit(
    api: Api, caller: str = "ann", path: str = "/v1/sessions", **body: object
) -> tuple[int, dict[str, Any]]:
    status, text = await api.call(caller, "POST", path, PROGRAM | body)
    return status, json.loads(text)


# -- stored --


async def test_the_database_refuses_invalid_options(store: Store) -> None:
    await put(store)
    for wrong in (
        "name = ''",
        "priority = 101",
        "price_factor = -1",
        "price_factor = 'NaN'",
        "max_time_s = 0",
        "max_per_session = '[]'",
        "max_total = NULL",
        "max_running = 0",
        "max_running_per_user = -1",
    ):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await store.database.fetch(f"UPDATE qos SET {wrong}")


async def test_a_qos_in_use_is_not_deleted(store: Store) -> None:
    await put(store)
    await add(store, "one", qos="debug")
    with pytest.raises(Conflict, match="QoS 'debug' is in use by sessions one"):
        await store.qos.delete(SYSTEM, "debug")

    view = await store.sessions.get(SYSTEM, "one")
    await store.database.fetch("UPDATE sessions SET status = 'CANCELLED' WHERE id = $1", view.id)
    await store.qos.delete(SYSTEM, "debug")
    assert (await store.sessions.get(SYSTEM, "one")).spec.qos == "debug", "its history stays"
    with pytest.raises(NotFound, match="qos 'debug' does not exist"):
        await add(store, "two", qos="debug")


async def test_no_session_starts_with_a_qos_that_is_being_deleted(
    store: Store, migrated_database: str
) -> None:
    await put(store)
    connection = await asyncpg.connect(migrated_database)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("DELETE FROM qos")
    creating = asyncio.create_task(add(store, "one", qos="debug"))
    await asyncio.sleep(0.2)
    assert not creating.done(), "it waits for the deletion to end"
    await transaction.commit()
    await connection.close()
    with pytest.raises(NotFound, match="qos 'debug' does not exist"):
        await creating


async def test_projects_see_and_use_only_theirs(store: Store) -> None:
    await put(store, "ours", projects=["vision"])
    await put(store, "everybody")
    async with serve(store) as api:
        for caller, names in (("ann", ["everybody", "ours"]), ("bob", ["everybody"])):
            _, text = await api.call(caller, "GET", "/v1/qos")
            assert [view["name"] for view in json.loads(text)["items"]] == names

        status, _ = await api.call("bob", "GET", "/v1/qos/ours")
        assert status == 404
        for path in ("/v1/sessions/plan", "/v1/sessions"):
            status, problem = await submit(api, "bob", path, qos="ours")
            assert status == 404
            assert problem["errors"][0]["field"] == "qos"
            assert problem["errors"][0]["allowed"] == ["everybody"]

        status, _ = await api.call("ann", "PUT", "/v1/qos/mine", {})
        assert status == 403, "only administrators set them"

    spec = SessionSpec.model_validate(PROGRAM | {"qos": "ours"})
    with pytest.raises(NotFound, match="project 'speech' may not use it"):
        await store.sessions.create(Scope.system("t", SUE), spec)


# -- applied --


async def test_a_session_takes_priority_and_preemption(store: Store) -> None:
    await put(store, priority=50, preemptible=True)
    async with serve(store) as api:
        _, made = await submit(api, qos="debug", type="interactive", preemptible=False)
        assert (made["priority"], made["spec"]["preemptible"]) == (50, True)
        _, made = await submit(api, qos="debug", priority=20)
        assert made["priority"] == 20, "above the ceiling of members, and not above the QoS"

        status, problem = await submit(api, qos="debug", priority=51)
        assert status == 403
        assert problem["detail"] == "priority 51 is above 50, the priority of qos 'debug'"
        status, _ = await submit(api, priority=20)
        assert status == 403, "without the QoS, the ceiling of the role applies"

        step = {"name": "one", "spec": PROGRAM | {"qos": "debug"}}
        _, text = await api.call("ann", "POST", "/v1/pipelines", {"name": "p", "steps": [step]})
        session = await store.sessions.get(SYSTEM, json.loads(text)["steps"][0]["session"])
        assert session.priority == 50


async def test_limits_on_one_session(store: Store) -> None:
    await put(
        store, max_time_s=600, max_per_session={"cuda.device": 2}, max_total={"cuda.device": 1}
    )
    async with serve(store) as api:
        _, made = await submit(api, qos="debug")
        assert made["spec"]["timeout_s"] == 600
        status, problem = await submit(api, qos="debug", timeout_s=601)
        assert (status, problem["code"]) == (403, "limit-exceeded")
        assert problem["detail"] == "timeout_s = 601 is above 600, the time limit of qos 'debug'"
        _, problem = await submit(api, qos="debug", resources={"cuda.device": 2})
        assert "is above 1, the `max_total` of qos 'debug'" in problem["detail"]
        status, problem = await submit(api, qos="debug", type="system")
        assert status == 422
        assert "`qos` applies to interactive and batch sessions" in problem["detail"]


async def test_passes_keep_the_limits_across_groups(store: Store) -> None:
    await FakeAgent(store, "a", gpus=8).report()
    await limit(store, "long", max_batch_time_s=60)
    await FakeAgent(store, "b", gpus=8, group="long").report()
    await put(store, max_running_per_user=1, max_total={"cuda.device": 3})
    await add(store, "ann-1", ANN, qos="debug")
    await add(store, "ann-2", ANN, qos="debug", resource_group="long", timeout_s=60)
    await add(store, "bob-1", BOB, qos="debug", resources={"cuda.device": 3})
    await add(store, "ann-3", ANN)
    await tick(store)
    await tick(store)
    assert await placed(store) == ["ann-1", "ann-3"]
    assert await refusals(store, "ann-2") == ["user ann in QoS debug: 1 concurrent sessions of 1"]
    assert await refusals(store, "bob-1") == [
        "QoS debug: cuda.device: used 1 + requested 3 > limit 3 (over by 1)"
    ]

    await put(store, max_running_per_user=2, max_total={"cuda.device": 5})
    await tick(store)
    await tick(store)
    assert await placed(store) == ["ann-1", "ann-2", "ann-3", "bob-1"]
    hold = (await store.sessions.get(SYSTEM, "ann-1")).hold
    assert hold is None or hold.reason is not Reason.QUOTA


async def test_a_planner_that_continues_applies_new_limits(store: Store) -> None:
    await FakeAgent(store, "a", gpus=8).report()
    await put(store, max_running_per_user=1, max_running=1)
    clock = StoreClock()
    async with Leader(store, clock) as leader:
        scheduler = Scheduler(
            store, leader, SessionTerminator(store, LOST_GRACE_S), ManagerMetrics(), clock=clock
        )
        for n, owner in enumerate((ANN, BOB, ANN)):
            await add(store, f"s{n}", owner, qos="debug")
            await scheduler.run_once()

        assert await placed(store) == ["s0"]
        await put(store, max_running_per_user=1, max_running=2)
        await scheduler.run_once()
        assert await placed(store) == ["s0", "s1"]
        await put(store, max_running_per_user=2, max_running=3)
        await scheduler.run_once()
        assert await placed(store) == ["s0", "s1", "s2"]


async def test_the_ledger_keeps_the_factor_of_submission(store: Store) -> None:
    await put(store, "half", price_factor=0.5)
    await put(store, "double", price_factor=2)
    await store.database.fetch(
        "INSERT INTO prices (unit, device, resource_group, since, price, changed_by) "
        "VALUES ('gpu', '', '', date_trunc('hour', now()) - interval '1 day', 3600000000, 't')"
    )
    agent = FakeAgent(store, gpus=3)
    kernels = {
        name: await run(store, agent, name, **qos)
        for name, qos in (("a", {"qos": "half"}), ("b", {"qos": "double"}), ("c", {}))
    }
    for kernel in kernels.values():
        await move_back(store, kernel, 100)
    await put(store, "half", price_factor=9)

    async def costs() -> dict[str, float]:
        """Cost by name, in the price of a second."""
        rows = await used(store, by=["session"])
        return {
            (await store.sessions.get(SYSTEM, row.session_id)).name: row.cost / row.gpu_ms / 1000
            for row in rows
        }

    expected = {"a": 0.5, "b": 2, "c": 1}
    assert await costs() == pytest.approx(expected), "while they run"
    for kernel in kernels.values():
        await end(store, agent, kernel)
    assert await costs() == pytest.approx(expected), "when they have ended"

    await store.database.fetch("DELETE FROM sessions")
    rolled = await store.database.fetch(SQL["ledger_roll_up"], -3600.0, 100)
    assert rolled[0]["rolled"] == 3, "cpu, memory and gpu of the session without a factor"
