"""Jobs that cannot be submitted because their site does not answer: they wait as if in its
queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from tests.unit.agent.kernel_node import CLOCK, Node, kernel

from moorage.agent.kernel import task
from moorage.agent.kernel.checkpoint import CheckpointFiles
from moorage.agent.runtimes import CreateFailed, Handle, Launch, RuntimeObservation
from moorage.common.link.messages import Observation
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType

AWAY = CreateFailed("nobody answers", reason=Reason.RUNTIME_UNAVAILABLE, clean=True)
PATIENCE_S = 1800.0


class Site:
    """The ``node`` of the site's agent. ``failure``: the failure of a submission, or None if it is
    accepted. ``intended``: for each try, whether the agent's checkpoint had the kernel."""

    def __init__(self, node: Node, state: Path, outage_s: float) -> None:
        self.node = node
        self.failure: CreateFailed | None = AWAY
        self.intended: list[bool] = []
        self._checkpoint = CheckpointFiles(state)
        runtime = node.runtime
        runtime.capabilities = replace(runtime.capabilities, outage_s=outage_s)
        self._create = runtime.create
        runtime.create = self.create  # type: ignore[method-assign]

    async def create(self, launch: Launch) -> Handle:
        self.intended.append(launch.kernel_id in self._checkpoint.load())
        if self.failure is not None:
            raise self.failure
        return await self._create(launch)

    @property
    def tries(self) -> int:
        return len(self.intended)

    async def tried(self, times: int) -> None:
        async with asyncio.timeout(30):
            while self.tries < times:
                await asyncio.sleep(0.001)


MakeSite = Callable[..., Site]


@pytest_asyncio.fixture
async def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeSite]:
    monkeypatch.setattr(task, "SITE_PAUSES_S", (0.001, 0.01))
    made: list[Site] = []

    def site(outage_s: float = PATIENCE_S) -> Site:
        made.append(
            Site(Node(tmp_path, made[-1].node if made else None, max_jobs=4), tmp_path, outage_s)
        )
        return made[-1]

    yield site
    for one in made:
        await one.node.kernels.close()


async def test_a_job_waits_until_its_site_answers(
    make: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of that time is counted as part of the start, and the job starts only once."""
    site = make()
    spec = kernel(start_timeout_s=900.0)
    await site.node.kernels.recover()
    site.node.order(spec)
    waits = await site.node.until(spec, S.QUEUED)
    assert waits is not None
    assert waits.detail == "not submitted yet: nobody answers"
    await site.tried(4)
    now = CLOCK.monotonic
    monkeypatch.setattr(CLOCK, "monotonic", lambda: now() + 1000)
    await site.tried(site.tries + 2)
    site.node.runtime.silent = RuntimeObservation(S.CREATING)
    site.failure = None
    starts = await site.node.until(spec, S.CREATING, S.EXITED)
    assert starts is not None
    assert starts.state is S.CREATING, "the clock of its start begins"
    site.node.runtime.silent = None
    site.node.node.kernels[spec.kernel_id].changed.set()
    runs = await site.node.until(spec, S.RUNNING, S.EXITED)
    assert runs is not None
    assert runs.state is S.RUNNING
    assert site.node.runtime.created == [spec.kernel_id]
    assert all(site.intended), "an agent that dies in a try finds what it began"


@pytest.mark.parametrize(
    ("failure", "outage_s"),
    [
        (AWAY, 0.0),  # a runtime on the node
        (CreateFailed("refused", clean=True), PATIENCE_S),
        (CreateFailed("in doubt", reason=Reason.RUNTIME_UNAVAILABLE), PATIENCE_S),
    ],
)
async def test_what_is_no_outage_ends_at_once(
    make: MakeSite, failure: CreateFailed, outage_s: float
) -> None:
    site = make(outage_s)
    spec = kernel(session_type=SessionType.BATCH)
    site.failure = failure
    await site.node.kernels.recover()
    site.node.order(spec)
    ended = await site.node.until(spec, S.QUEUED, S.EXITED)
    assert ended is not None
    assert (ended.state, ended.reason, site.tries) == (S.EXITED, failure.reason, 1)


@pytest.mark.parametrize(
    ("kind", "passed_s", "waits"),
    [
        (SessionType.BATCH, PATIENCE_S - 60, True),
        (SessionType.BATCH, PATIENCE_S + 60, False),
        (SessionType.INFERENCE, 40.0, True),
        (SessionType.INFERENCE, 70.0, False),
    ],
)
async def test_patience(
    make: MakeSite, monkeypatch: pytest.MonkeyPatch, kind: SessionType, passed_s: float, waits: bool
) -> None:
    site = make()
    spec = kernel(session_type=kind)
    await site.node.kernels.recover()
    site.node.order(spec)
    await site.node.until(spec, S.QUEUED)
    now = CLOCK.monotonic
    monkeypatch.setattr(CLOCK, "monotonic", lambda: now() + passed_s)

    if waits:
        await site.tried(site.tries + 3)
        assert _state(site, spec.kernel_id) is S.QUEUED
    else:
        ended = await site.node.until(spec, S.EXITED)
        assert ended is not None
        assert ended.reason is Reason.RUNTIME_UNAVAILABLE


def _state(site: Site, kernel_id: str) -> S | None:
    found: list[Observation] = [
        o for o in site.node.kernels.observations() if o.kernel_id == kernel_id
    ]
    return found[0].state if found else None


async def test_a_job_that_is_stopped_meanwhile_is_never_submitted(
    make: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "SITE_PAUSES_S", (600.0,))
    site = make()
    spec = kernel()
    await site.node.kernels.recover()
    site.node.order(spec)
    await site.node.until(spec, S.QUEUED)
    site.node.order()
    await site.node.until(spec, None)
    assert (site.tries, site.node.runtime.created) == (1, [])


async def test_an_agent_that_is_restarted_meanwhile_begins_anew(
    make: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No recorded intent remained that would have been treated as a start."""
    monkeypatch.setattr(task, "SITE_PAUSES_S", (600.0,))
    before = make()
    spec = kernel()
    await before.node.kernels.recover()
    before.node.order(spec)
    await before.node.until(spec, S.QUEUED)
    await before.node.kernels.close()
    after = make()
    after.failure = None
    await after.node.kernels.recover()
    after.node.order(spec)
    runs = await after.node.until(spec, S.RUNNING, S.GONE, S.EXITED)
    assert runs is not None
    assert runs.state is S.RUNNING
