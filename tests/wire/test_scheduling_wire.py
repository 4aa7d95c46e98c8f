"""What users and administrators ask of the scheduler, from REST down to played agents and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from simulated_fleet import manager_with_fleet

from moorage.common.aio.clock import SystemClock
from moorage.common.model.group_options import GroupOptions, PreemptionOptions, QuotaLimits
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, Result, Status
from moorage.common.views.resources import SessionView
from moorage.sdk import ApiError, Client

CLOCK = SystemClock()


@pytest_asyncio.fixture
async def client(empty_database: str, tmp_path: Path) -> AsyncIterator[Client]:
    """Of a manager with one played agent of four devices, attached."""
    async with manager_with_fleet(empty_database, tmp_path, within_s=60) as (made, _, _):
        yield made


async def ask(client: Client, name: str, **more: object) -> SessionView:
    base: dict[str, object] = {"command": ["x"], "resources": {"cuda.device": 1}, "name": name}
    return await client.create_session(SessionSpec.model_validate(base | more))


async def until(client: Client, name: str, *statuses: Status) -> SessionView:
    while (view := await client.get_session(name)).status not in statuses:
        await asyncio.sleep(0.02)
    return view


FOREVER = {"SIM_RUN_S": "forever"}


async def test_a_chain_of_jobs(client: Client) -> None:
    await ask(client, "prep", env={"SIM_RUN_S": "0.5"})
    await ask(client, "train", depends_on=["prep"])
    await ask(client, "broken", depends_on=["prep"], env={"SIM_EXIT": "3"})
    await ask(client, "report", depends_on=["train", "broken"])
    await ask(client, "cleanup", depends_on=[{"session": "broken", "on": "failure"}])
    views = {name: await until(client, name, *TERMINAL) for name in ("train", "broken", "report", "cleanup")}
    results = [(view.status, view.result) for view in views.values()]
    assert results == [
        (Status.TERMINATED, Result.SUCCESS),
        (Status.TERMINATED, Result.FAILED),
        (Status.CANCELLED, Result.UNDEFINED),
        (Status.TERMINATED, Result.SUCCESS),
    ]
    assert views["report"].reason is Reason.DEPENDENCY_FAILED
    assert views["broken"].id in views["report"].detail
    first = (await client.get_session("prep")).status_since
    for name in ("train", "cleanup"):
        assert (await client.history(name))[1].at >= first


async def test_a_job_that_starts_later(client: Client) -> None:
    at = CLOCK.now() + timedelta(seconds=1.5)
    made = await ask(client, "later", starts_at=at)
    assert made.hold is not None
    assert made.hold.reason is Reason.BEGIN_TIME
    await until(client, "later", *TERMINAL)
    assert (await client.history("later"))[1].at >= at


async def test_a_quota_holds_and_is_lifted_at_once(client: Client) -> None:
    await client.set_quota("user", "admin", QuotaLimits(slots={"cuda.device": 2}, pending=2))
    for n in range(2):
        await ask(client, f"s{n}", env=FOREVER)
        await until(client, f"s{n}", Status.RUNNING)
    for n in (2, 3):
        await ask(client, f"s{n}", env=FOREVER)
    with pytest.raises(ApiError, match="may have 2 pending"):
        await ask(client, "s4")
    while (hold := (await client.get_session("s2")).hold) is None:
        await asyncio.sleep(0.02)
    assert hold.reason is Reason.QUOTA
    (quota,) = await client.list_quotas()
    assert (quota.used, quota.running, quota.waiting) == ({"cuda.device": 2}, 2, 2)
    await client.delete_quota("user", "admin")
    for n in (2, 3):
        await until(client, f"s{n}", Status.RUNNING)


async def test_room_is_made_for_what_is_more_important(client: Client) -> None:
    await client.update_group("default", GroupOptions(preemption=PreemptionOptions()))
    for n in range(4):
        await ask(client, f"low{n}", env=FOREVER, type="interactive", stop_grace_s=1)
        await until(client, f"low{n}", Status.RUNNING)
    await ask(client, "high", resources={"cuda.device": 2}, priority=90, env=FOREVER)
    await until(client, "high", Status.RUNNING)
    views = [await client.get_session(f"low{n}") for n in range(4)]
    waiting = [view for view in views if view.status is Status.PENDING]
    assert [view.reason for view in waiting] == [Reason.PREEMPTED] * 2, "no more than it needs"
    assert {view.name for view in waiting} == {"low2", "low3"}, "the newest"
    await client.stop_session("high")
    for view in waiting:
        again = await until(client, view.name, Status.RUNNING)
        assert again.attempt == 2


async def test_what_never_fits_is_said_at_once(client: Client) -> None:
    made = await ask(client, "huge", resources={"cuda.device": 5})
    assert "needs 5 cuda.device, has 4 even when empty" in made.warnings[0]
    with pytest.raises(ApiError, match="needs 5") as caught:
        await client.create_session(SessionSpec(command=["x"], resources={"cuda.device": 5}), strict=True)
    assert (caught.value.status, caught.value.problem.code) == (409, "infeasible")
    assert (await ask(client, "fits", resources={"cuda.device": 4})).warnings == []
