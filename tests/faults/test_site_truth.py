"""A site's truth: each way in which jobs can contradict their sessions is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from moorage.agent.runtimes.batch import JobName, kernel_part
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import Status
from moorage.common.views.resources import KernelView, SessionView
from tests.heappe.cluster import Submission
from tests.heappe.database import RUNNING, Task
from tests.heappe.switches import Switches

from .account import Charge
from .schedule import fault_sequences
from .site import SWITCHED, FaultySite
from .site_truth import (
    SiteJob,
    calls_allowed,
    charged_wrongly_at_site,
    jobs_allowed,
    most_alive,
    outlived,
    strangers,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
ONE, TWO = (KernelId(SystemClock().new_id()) for _ in range(2))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def job(kernel: KernelId, submitted: float, started: float | None, ended: float | None) -> SiteJob:
    times = [None if each is None else at(each) for each in (started, ended)]
    return SiteJob(str(JobName("0" * 8, kernel_part(kernel))), at(submitted), *times)


def session(*kernels: KernelId, ended: float | None = 20) -> SessionView:
    views = [
        KernelView(
            id=each, attempt=number, status=Status.TERMINATED, agent_id="site-1", status_since=START
        )
        for number, each in enumerate(kernels, start=1)
    ]
    status = Status.RUNNING if ended is None else Status.TERMINATED
    given: dict[str, Any] = {
        "name": "s",
        "kernels": views,
        "status": status,
        "reason": Reason.USER_REQUESTED,
    }
    return SessionView.model_construct(**given | {"status_since": at(ended or 0)})


RUN = job(ONE, 0, 2, 10)
QUEUED = job(ONE, 0, None, 5)


@pytest.mark.parametrize(
    ("jobs", "problem"),
    [
        ([RUN], ""),
        ([RUN, job(TWO, 1, 3, 9)], ""),
        ([RUN, replace(RUN, name="mg-00000000-000000000000-1")], "is of no kernel"),
        ([replace(RUN, name="engine")], "is of no kernel"),
        ([job(ONE, 8, 9, None), RUN], "has two jobs at 00:00:08"),
        ([replace(RUN, ended=None), job(ONE, 8, 9, None)], "has two jobs"),
        ([RUN, job(ONE, 12, None, 13)], "has run, and is submitted again at 00:00:12"),
        ([QUEUED, job(ONE, 6, 7, 9)], ""),  # it never ran
    ],
)
def test_a_kernel_has_one_job(jobs: list[SiteJob], problem: str) -> None:
    found = strangers(jobs, [session(ONE, TWO)])
    assert [problem in each for each in found] == [True] * bool(problem)


@pytest.mark.parametrize(
    ("jobs", "ended", "problem"),
    [
        ([RUN], 10, ""),
        ([RUN], 9.5, ""),  # to the second
        ([RUN], 8, "its job until 00:00:10"),
        ([replace(RUN, ended=None)], 20, "its job for ever"),
        ([replace(RUN, ended=None)], None, ""),
        ([job(TWO, 0, 1, None)], 20, "its job for ever"),
        ([replace(RUN, disowned=at(7))], 8, ""),  # the site reports that it has ended
        ([replace(RUN, ended=None, disowned=at(7))], 8, ""),
        ([replace(RUN, ended=None, disowned=at(7))], 5, "its job until 00:00:07"),
    ],
)
def test_a_session_ends_after_its_job(
    jobs: list[SiteJob], ended: float | None, problem: str
) -> None:
    found = outlived(jobs, [session(TWO, ONE, ended=ended)])
    assert [problem in each for each in found] == [True] * bool(problem)


@pytest.mark.parametrize(
    ("began", "ended", "ran", "problem"),
    [
        (2, 10, RUN, ""),
        (1, 11, RUN, ""),  # to the second, on two clocks
        (2, 60, RUN, ""),  # that is when its end became known
        (2, 62, RUN, ""),
        (5, 10, RUN, "is charged from"),
        (2, 7, RUN, "is charged until"),
        (2, 70, RUN, "with a walltime until"),
        (2, 30, replace(RUN, ended=None), "is charged until"),
        (2, 7, replace(RUN, disowned=at(7)), ""),
        (2, 4, replace(RUN, disowned=at(7)), "is charged until"),
        (2, 10, QUEUED, "never ran"),
        (2, 10, job(TWO, 0, 2, 10), "never ran"),
    ],
)
def test_a_job_is_charged_as_its_site_ran_it(
    began: float, ended: float, ran: SiteJob, problem: str
) -> None:
    charge = Charge(ONE, int(at(began).timestamp()), int(at(ended).timestamp()), "exit-zero")
    found = charged_wrongly_at_site([charge], [ran], 60)
    assert [problem in each for each in found] == [True] * bool(problem)


def test_jobs_that_are_alive_at_one_time_are_counted() -> None:
    assert most_alive([]) == 0
    assert most_alive([RUN, job(TWO, 10, 11, None)]) == 1, "one ended as the other was submitted"
    assert most_alive([RUN, job(TWO, 9, None, None), job(TWO, 9.5, None, 9.6)]) == 3
    assert most_alive([replace(RUN, disowned=at(5)), job(TWO, 6, None, None)]) == 1, (
        "nobody can know"
    )


def test_bounds() -> None:
    assert jobs_allowed(2, 150, 75, 0) == 10
    assert jobs_allowed(2, 150, 75, 3) == 13
    assert calls_allowed(100, 10, 2) == 220


async def test_each_fault_of_a_site_is_undone() -> None:
    site = FaultySite(seed=1)
    await site.start()
    try:
        for kind in SWITCHED:
            await site.begin(kind)
            is_switched = site.server.switches != Switches()
            assert is_switched is bool(SWITCHED[kind]), kind
            await site.end(kind)
            assert replace(site.server.switches, submit_lost_as="slurm") == Switches(), kind
            async with aiohttp.ClientSession() as http, http.get(site.server.url) as answer:
                assert answer.status == 404, f"the server listens after {kind}"
    finally:
        await site.stop()


async def test_jobs_that_the_database_of_a_site_denies_are_disowned() -> None:
    site = FaultySite(seed=1)
    await site.start()
    try:
        now = site.server.clock.now()
        database = site.server.database
        work = Submission(
            "mg-00000000-000000000000-1",
            "t",
            walltime_s=60,
            nodes=1,
            queue="q",
            command="true",
            arguments=(),
            directory=site.server.root,
        )
        number = await site.server.cluster.submit(work, now)
        assert site.jobs()[0].disowned == now, "it was submitted, and nobody was told"
        row = site.server.add_job(work.name, state=RUNNING)
        template = site.server.site.templates[0]
        kind = site.server.site.node_types[0]
        row.tasks.append(
            Task(
                1,
                work,
                template=template,
                node_type=kind,
                project=row.project,
                scheduler_id=number,
                state=RUNNING,
            )
        )
        assert site.jobs()[0].disowned is None
        database.fail(row, now)
        assert site.jobs()[0].disowned == now
        assert site.jobs()[0].ended is None
        assert site.left() == ["mg-00000000-000000000000-1 is PENDING, unknown to HEAppE"]
    finally:
        await site.stop()


@pytest.mark.parametrize("site", [False, True])
def test_every_fault_comes_once_in_a_round(site: bool) -> None:
    sequences = fault_sequences(3, frozenset({"unplug", "throttle"}), site)
    assert len(sequences) == (3 if site else 2)
    if site:
        faults = [next(sequences[2]) for _ in range(2 * (len(SWITCHED) + 2))]
        kinds = Counter(fault.kind for fault in faults)
        assert kinds == dict.fromkeys((*SWITCHED, "kill", "pause"), 2)
        assert all(
            10 <= fault.duration_s <= 30 for fault in faults if fault.kind == "login-node-away"
        )
