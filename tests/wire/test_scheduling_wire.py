"""Scheduling end to end: from the REST API to simulated agents and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from simulated_fleet import manager_with_fleet

from moorage.common.model.group_options import GroupOptions, PreemptionOptions, QuotaLimits
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, Result, Status
from moorage.common.views.resources import SessionView
from moorage.sdk import ApiError, Client


@pytest_asyncio.fixture
async def client(migrated_database: str, tmp_path: Path) -> AsyncIterator[Client]:
    """A client for a manager with one simulated agent of four devices."""
    async with manager_with_fleet(migrated_database, tmp_path, within_s=60) as (connected, _, _):
        yield connected


async def create(client: Client, name: str, **fields: object) -> SessionView:
    base: dict[str, object] = {"command": ["x"], "resources": {"cuda.device": 1}, "name": name}
    return await client.sessions.create(SessionSpec.model_validate(base | fields))


async def until(client: Client, name: str, *statuses: Status) -> SessionView:
    while (view := await client.sessions.get(name)).status not in statuses:
        await asyncio.sleep(0.02)
    return view


FOREVER = {"SIM_RUN_S": "forever"}


async def test_dependencies_between_jobs(client: Client) -> None:
    await create(client, "prep", env={"SIM_RUN_S": "0.5"})
    await create(client, "train", depends_on=["prep"])
    await create(client, "broken", depends_on=["prep"], env={"SIM_EXIT": "3"})
    await create(client, "report", depends_on=["train", "broken"])
    await create(client, "cleanup", depends_on=[{"session": "broken", "on": "failure"}])
    views = {
        name: await until(client, name, *TERMINAL)
        for name in ("train", "broken", "report", "cleanup")
    }
    results = [(view.status, view.result) for view in views.values()]
    assert results == [
        (Status.TERMINATED, Result.SUCCESS),
        (Status.TERMINATED, Result.FAILED),
        (Status.CANCELLED, Result.UNDEFINED),
        (Status.TERMINATED, Result.SUCCESS),
    ]
    assert views["report"].reason is Reason.DEPENDENCY_FAILED
    assert (
        views["report"].detail == "broken ended TERMINATED FAILED exit-nonzero, needed was success"
    )
    first = (await client.sessions.get("prep")).status_since
    for name in ("train", "cleanup"):
        assert (await client.sessions.history(name))[1].at >= first


async def test_job_with_a_begin_time(client: Client, migrated_database: str) -> None:
    created = await create(client, "later", starts_at=datetime.now(UTC) + timedelta(hours=1))
    assert created.hold is not None
    assert created.hold.reason is Reason.BEGIN_TIME
    connection = await asyncpg.connect(migrated_database)
    at = await connection.fetchval("UPDATE sessions SET starts_at = now() RETURNING starts_at")
    await connection.close()
    await until(client, "later", *TERMINAL)
    assert (await client.sessions.history("later"))[1].at >= at


async def test_quota_holds_sessions_until_it_is_removed(client: Client) -> None:
    await client.quotas.set("user", "admin", QuotaLimits(slots={"cuda.device": 2}, pending=2))
    for n in range(2):
        await create(client, f"s{n}", env=FOREVER)
        await until(client, f"s{n}", Status.RUNNING)
    for n in (2, 3):
        await create(client, f"s{n}", env=FOREVER)

    with pytest.raises(ApiError, match="may have 2 pending"):
        await create(client, "s4")

    while (hold := (await client.sessions.get("s2")).hold) is None:
        await asyncio.sleep(0.02)

    assert hold.reason is Reason.QUOTA
    (quota,) = await client.quotas.list()
    assert (quota.used, quota.running, quota.waiting) == ({"cuda.device": 2}, 2, 2)
    await client.quotas.delete("user", "admin")
    for n in (2, 3):
        await until(client, f"s{n}", Status.RUNNING)


async def test_higher_priority_preempts_the_newest_sessions(client: Client) -> None:
    await client.groups.update("default", GroupOptions(preemption=PreemptionOptions()))
    for n in range(4):
        asked: dict[str, object] = {"type": "interactive", "preemptible": True}
        await create(client, f"low{n}", env=FOREVER, stop_grace_s=1, **asked)
        await until(client, f"low{n}", Status.RUNNING)

    await create(client, "high", resources={"cuda.device": 2}, priority=90, env=FOREVER)
    await until(client, "high", Status.RUNNING)
    views = [await client.sessions.get(f"low{n}") for n in range(4)]
    waiting = [view for view in views if view.status is Status.PENDING]
    assert [view.reason for view in waiting] == [Reason.PREEMPTED] * 2, (
        "more sessions preempted than needed"
    )
    assert {view.name for view in waiting} == {"low2", "low3"}, "older sessions preempted"
    await client.sessions.stop("high")
    for view in waiting:
        again = await until(client, view.name, Status.RUNNING)
        assert again.attempt == 2


async def test_infeasible_session_has_a_warning_and_is_refused_with_strict(client: Client) -> None:
    created = await create(client, "huge", resources={"cuda.device": 5})
    assert "needs 5 cuda.device, has 4 even when empty" in created.warnings[0]
    with pytest.raises(ApiError, match="needs 5") as caught:
        await client.sessions.create(
            SessionSpec(command=["x"], resources={"cuda.device": 5}), strict=True
        )
    assert (caught.value.status, caught.value.problem.code) == (409, "infeasible")
    assert (await create(client, "fits", resources={"cuda.device": 4})).warnings == []
