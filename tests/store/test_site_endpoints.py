"""Endpoints whose replicas run as site jobs: the cap on jobs, sleeping and waking."""

from __future__ import annotations

import pytest

from moorage.common.model.group_options import GroupOptions, QuotaLimits
from moorage.common.model.hpc_options import HpcOptions
from moorage.common.model.status import EndpointStatus, Status
from moorage.manager.store import Store

from .test_loads import SYSTEM, Loaded, scaled
from .test_rollouts import complete
from .test_site_sessions import as_site

JOBS = 2


@pytest.fixture(params=["agent", "quota"])
async def platform(request: pytest.FixtureRequest, store: Store) -> Loaded:
    """An endpoint whose group is a site that accepts ``JOBS`` jobs, according to the site's agent
    or the group's quota."""
    site = HpcOptions(runtime="fake", walltime_s=86_400)
    await store.groups.put("default", GroupOptions(hpc=site), actor="t")
    made = Loaded(store)
    if request.param == "quota":
        await store.quotas.put(SYSTEM, "group", "default", QuotaLimits(slots={"jobs": JOBS}))

    as_site(made.agent, JOBS if request.param == "agent" else 100)
    await made.agent.report()
    return made


async def live(platform: Loaded) -> list[Status]:
    """The status of each of the site's jobs."""
    rows = await platform.store.database.fetch(
        "SELECT status FROM kernels WHERE status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')"
    )
    return [Status(row["status"]) for row in rows]


async def test_no_more_replicas_run_than_the_site_takes_jobs(platform: Loaded) -> None:
    await platform.create(**scaled(max=5, waiting=1), replicas=4)
    for _ in range(4):
        view = await platform.run()
        assert len(await live(platform)) == JOBS

    assert (view.replicas, view.ready) == (4, JOBS)
    assert [one.status for one in view.sessions].count(Status.PENDING) == 2, "they wait for room"
    await platform.report(requests=20, waiting=20)
    await platform.age(600)
    for _ in range(3):
        view = await platform.scale()
        assert len(await live(platform)) == JOBS, "load does not raise it"

    assert view.ready == JOBS


async def test_idle_endpoint_leaves_the_site_and_a_held_request_submits_at_once(
    platform: Loaded,
) -> None:
    await platform.create(**scaled(min=0, idle_timeout_s=60))
    await platform.report(requests=1)
    await platform.until(complete)
    assert len(await live(platform)) == JOBS
    await platform.age(61)
    view = await platform.scale()
    assert (view.replicas, view.status) == (0, EndpointStatus.NOT_LOADED)
    await platform.until(lambda view: not any(one.state for one in view.sessions))
    assert await live(platform) == [], "no job is left"
    [model] = (await platform.store.routes.table()).models
    assert model.holds, "a request waits for the job"
    await platform.report(requests=1, waiting=1)
    assert (await platform.scale()).replicas == 1
    assert len(await live(platform)) == 1, "one round submits the job"
    [decision, *_] = (await platform.service.decisions(SYSTEM, "m")).items
    assert (decision.rule, decision.inputs["held"]) == ("wake", 1)
