"""The ledger: kernel usage, charged once and to the second, no matter how the kernels ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.metering import ModelUsage, UsageSplit
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import RUNNING, FakeAgent, mark_silent, reconcile_all, schedule, stop

SYSTEM = Scope.system("t")
ANN = Scope.system("t", Owner("ann", "vision"))


async def used(store: Store, **given: object) -> list[ModelUsage]:
    """The usage of the last four months."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    split = UsageSplit.model_validate({"by": ["project"], **given})
    page = await store.usage_records.page(
        SYSTEM, hour - timedelta(days=160), hour + timedelta(hours=1), split, limit=5000
    )
    assert page.next is None
    return page.items


async def seconds(store: Store) -> float:
    """Everyone's GPU seconds."""
    return sum(one.gpu_ms for one in await used(store)) / 1000


async def run(store: Store, agent: FakeAgent, name: str = "s", **more: object) -> str:
    """Returns its kernel."""
    given = {
        "command": ["x"],
        "name": name,
        "resources": {"cpu": 2, "mem": "3GiB", "cuda.device": 1},
    }
    await agent.report()
    made = await store.sessions.create(ANN, SessionSpec.model_validate(given | more))
    assert await schedule(store) == 1
    kernel = made.kernels[0].id
    agent.see(kernel, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)

    return kernel


async def move_back(store: Store, kernel: str, by_s: float) -> None:
    """It started running this much earlier."""
    await store.database.fetch(
        "UPDATE kernels SET running_at = date_trunc('second', running_at) - make_interval(secs => $2) "
        "WHERE id = $1",
        kernel,
        by_s,
    )


async def end(store: Store, agent: FakeAgent, kernel: str) -> None:
    agent.see(kernel, ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
    await agent.report()
    await reconcile_all(store)


async def records(store: Store) -> list[tuple[str, str, int]]:
    rows = await store.database.fetch("SELECT unit, device, rate FROM ledger ORDER BY unit")
    return [(row["unit"], row["device"], row["rate"]) for row in rows]


async def test_kernel_is_charged_when_it_ends(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    await move_back(store, kernel, 100)
    [running] = await used(store, by=["project", "user", "resource_group", "session"])
    assert (running.project, running.user, running.resource_group) == ("vision", "ann", "default")
    assert 100_000 <= running.gpu_ms <= 130_000, "until now"
    assert await records(store) == []
    await end(store, agent, kernel)
    assert await records(store) == [("cpu", "", 2000), ("gpu", "H100", 1000), ("memory", "", 3072)]
    [ended] = await used(store)
    length_s = ended.gpu_ms // 1000
    assert 100 <= length_s <= 130
    assert (ended.cpu_ms, ended.memory_mib_s, ended.node_ms) == (
        2000 * length_s,
        3072 * length_s,
        0,
    )
    by_device = {one.device: one.gpu_ms for one in await used(store, by=["device"])}
    assert by_device == {"": 0, "H100": ended.gpu_ms}
    await agent.report()
    assert len(await records(store)) == 3


async def test_kernel_that_never_ran_is_not_charged(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.sessions.create(ANN, SessionSpec(command=["x"], name="s"))
    assert await schedule(store) == 1
    await stop(store, "s")
    agent.confirms = True
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "s")).status in (Status.TERMINATED, Status.CANCELLED)
    assert await records(store) == []


async def silence(store: Store, agent: FakeAgent, for_s: float) -> None:
    await store.database.fetch(
        "UPDATE agents SET last_seen = date_trunc('second', now()) - make_interval(secs => $1)",
        for_s,
    )


@pytest.mark.parametrize("retries", [0, 3])
async def test_lost_attempt_is_charged_up_to_the_last_contact(store: Store, retries: int) -> None:
    """This holds even if the agent comes back later and the kernel has run all the time."""
    agent = FakeAgent(store)
    more = {"on_lost_agent": "requeue", "overlap": "allowed", "retries": 3} if retries else {}
    kernel = await run(store, agent, **more)
    await move_back(store, kernel, 5000)
    await mark_silent(store, agent.name)
    await silence(store, agent, 4000)
    lost = await seconds(store)
    assert 999 <= lost <= 1031
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "s")
    assert view.status is (Status.PENDING if retries else Status.ERROR)
    assert await seconds(store) == lost
    agent.reconnect(store)
    await agent.report()
    await end(store, agent, kernel)
    assert await seconds(store) == lost


async def test_lost_kernel_is_not_charged_again_when_its_device_has_another_name(
    store: Store,
) -> None:
    """As after a driver update while the node was away."""
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    await move_back(store, kernel, 5000)
    await mark_silent(store, agent.name)
    await silence(store, agent, 4000)
    await reconcile_all(store)
    before = await records(store)
    assert [unit for unit, _, _ in before] == ["cpu", "gpu", "memory"]
    agent.gpu_model = "NVIDIA H100 80GB HBM3"
    agent.reconnect(store)
    await agent.report()
    await end(store, agent, kernel)
    assert await records(store) == before


async def test_kernel_that_outlives_the_silence_of_its_agent_is_charged_throughout(
    store: Store,
) -> None:
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    await move_back(store, kernel, 5000)
    await mark_silent(store, agent.name, lost=False)
    await silence(store, agent, 4000)
    assert 999 <= await seconds(store) <= 1031
    agent.reconnect(store)
    await agent.report()
    assert 5000 <= await seconds(store) <= 5060
    await end(store, agent, kernel)
    assert 5000 <= await seconds(store) <= 5060


async def test_kernel_that_is_gone_when_its_agent_returns_is_charged_up_to_the_silence(
    store: Store,
) -> None:
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    await move_back(store, kernel, 5000)
    await mark_silent(store, agent.name, lost=False)
    await silence(store, agent, 4000)
    agent.reconnect(store)
    agent.seen.clear()
    await agent.report()
    await reconcile_all(store)
    assert len(await records(store)) == 3
    assert 999 <= await seconds(store) <= 1031


async def test_records_stay_and_are_unique(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    await end(store, agent, kernel)
    with pytest.raises(asyncpg.RaiseError, match="never changed"):
        await store.database.fetch("UPDATE ledger SET amount = 0")

    copy = (
        "began_at, ended_at, project, username, key_id, model, endpoint, session_id, resource_group"
    )
    with pytest.raises(asyncpg.UniqueViolationError):
        await store.database.fetch(
            f"INSERT INTO ledger (kernel_id, unit, device, rate, amount, {copy}) "
            f"SELECT kernel_id, unit, device, rate, amount, {copy} FROM ledger LIMIT 1"
        )

    with pytest.raises(asyncpg.CheckViolationError, match="ledger_amount"):
        await store.database.fetch(
            f"INSERT INTO ledger (kernel_id, unit, device, rate, amount, {copy}) "
            f"SELECT gen_random_uuid(), unit, device, rate, amount + 1, {copy} FROM ledger LIMIT 1"
        )


async def test_parts_of_hours_days_and_months_add_up(store: Store) -> None:
    """Usage as records, and rolled up into months after their sessions are gone."""
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    await move_back(store, kernel, 95 * 86_400 + 1234)
    other = await run(store, agent, "other")
    await move_back(store, other, 7777)
    await end(store, agent, kernel)
    await end(store, agent, other)
    [whole] = await used(store)
    assert whole.gpu_ms >= 1000 * (95 * 86_400 + 1234 + 7777)
    months: dict[datetime | None, int] = {}
    for bucket in ("year", "week", "hour", "day", "month"):
        parts = await used(store, bucket=bucket)
        assert len(parts) >= {"hour": 95 * 24, "day": 95, "week": 14, "month": 4, "year": 1}[bucket]
        for name in ("gpu_ms", "cpu_ms", "memory_mib_s"):
            assert sum(getattr(part, name) for part in parts) == getattr(whole, name)

        assert max((part.gpu_ms for part in parts[1:-1]), default=0) <= {
            "hour": 3600,
            "day": 86_400,
            "week": 7 * 86_400,
            "year": 366 * 86_400,
            "month": 31 * 86_400,
        }[bucket] * 1000 + (7_777_000 if bucket != "hour" else 3_600_000)
        months = {part.at: part.gpu_ms for part in parts}

    await store.usage_records.compact(-10)
    assert len(await records(store)) == 6, "their sessions are not deleted"
    await store.database.fetch("DELETE FROM sessions")
    while await store.usage_records.compact(-10):
        pass

    assert await records(store) == []
    assert {part.at: part.gpu_ms for part in await used(store, bucket="month")} == months
    assert await used(store) == [whole]
