"""An agent's doubtful jobs: they are shown while it reports them, and kept in its history."""

from __future__ import annotations

from dataclasses import replace

from moorage.common.model.kernel import DoubtfulJob
from moorage.manager.store import Store

from .conftest import FakeAgent

JOB = DoubtfulJob(
    "slurm",
    "mg-12345678-0123456789ab-1",
    job_id="77",
    since=1_800_000_000.5,
    why="nobody's",
    tried="cancelled",
)


async def events(store: Store) -> list[tuple[str, str]]:
    return [(event.event, event.detail) for event in (await store.agents.history("node-1")).items]


async def test_doubtful_jobs_are_shown_until_they_are_settled(store: Store) -> None:
    agent = FakeAgent(store, stream=1, doubtful_jobs=(JOB,))
    await agent.report()
    [shown] = (await store.agents.get("node-1")).doubtful_jobs
    assert (shown.name, shown.job_id, shown.why, shown.tried) == (
        JOB.name,
        "77",
        "nobody's",
        "cancelled",
    )
    assert shown.since.timestamp() == JOB.since
    assert ("doubtful-job", "", "default", 1) in await store.counts()
    agent.doubtful_jobs = (replace(JOB, why="still nobody's"), replace(JOB, job_id="78"))
    await agent.report()
    await agent.report()
    assert ("doubtful-job", "", "default", 2) in await store.counts()
    agent.doubtful_jobs = ()
    await agent.report()
    assert (await store.agents.get("node-1")).doubtful_jobs == []
    assert not [row for row in await store.counts() if row[0] == "doubtful-job"]
    first, second, settled = reversed(await events(store))
    assert first == ("doubtful-job", f"{JOB.name} (job 77): nobody's")
    assert second == ("doubtful-job", f"{JOB.name} (job 78): nobody's")
    assert settled[0] == "settled-job"
    assert "(job 77)" in settled[1]
    assert "(job 78)" in settled[1]


async def test_agents_of_the_release_before_have_none(store: Store) -> None:
    await FakeAgent(store, stream=1).report()
    assert (await store.agents.get("node-1")).doubtful_jobs == []
    assert await events(store) == []
