"""Walltime successors in virtual time: over many walltimes, an endpoint is never without a ready
replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import TERMINAL, Status
from moorage.common.views.resources import SessionView
from moorage.manager.explain.site_queue import explain_short
from moorage.manager.serving.lifetime import (
    LAST_S,
    holds_next,
    late_successor,
    next_ready_at,
    ready_expected_at,
    successor_due_at,
)
from moorage.manager.serving.replicas import plan_replicas
from moorage.manager.serving.snapshots import EndpointSnapshot, ReplicaSnapshot, StartHistory

START = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = EndpointSpec(name="m", engine="llamacpp", model="/m.gguf", resource_group="hpc")


@dataclass
class Site:
    """A site that simulates one endpoint's jobs. ``queue_s``: how long the nth job waits."""

    walltime_s: float
    queue_s: Callable[[int], float]
    load_s: float
    history: StartHistory
    wanted: int = 1
    now: datetime = START
    jobs: tuple[ReplicaSnapshot, ...] = ()
    submitted: int = 0
    warned: bool = False

    @property
    def endpoint(self) -> EndpointSnapshot:
        return EndpointSnapshot(
            EndpointId("e"), "m", SPEC, self.wanted, START, False, self.jobs, proven=True,
            starts={"hpc": self.history},
        )  # fmt: skip

    @property
    def ready(self) -> int:
        return sum(job.serves for job in self.jobs)

    def _advance(self, job: ReplicaSnapshot) -> ReplicaSnapshot:
        if job.status in TERMINAL:
            return job

        begins = job.created_at + timedelta(seconds=self.queue_s(int(job.session_id)))
        ends = begins + timedelta(seconds=self.walltime_s)
        ready = begins + timedelta(seconds=self.load_s)
        if self.now >= ends:
            return replace(job, status=Status.TERMINATED, reason=Reason.WALLTIME, status_since=ends)

        if self.now >= ready:
            return replace(
                job,
                status=Status.RUNNING,
                ready_at=ready,
                ends_at=ends,
                in_flight=0,
                is_confirmed=True,
            )

        return replace(job, status=Status.CREATING if self.now >= begins else Status.QUEUED)

    def step(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.jobs = tuple(self._advance(job) for job in self.jobs)
        self.warned = self.warned or late_successor(self.endpoint, self.now) is not None
        plan = plan_replicas(self.endpoint, self.now)
        stopped = dict(plan.stop)
        drained = dict(plan.drain)
        self.jobs = tuple(
            replace(
                job, status=Status.TERMINATED, reason=stopped[job.session_id], status_since=self.now
            )
            if job.session_id in stopped
            else replace(job, draining_since=self.now, drain_reason=drained[job.session_id])
            if job.session_id in drained
            else job
            for job in self.jobs
        )
        for _ in range(plan.start):
            new = ReplicaSnapshot(
                SessionId(str(self.submitted)), Status.PENDING, self.now, self.now, group="hpc",
                walltime_s=self.walltime_s,
            )  # fmt: skip
            self.submitted += 1
            self.jobs = (new, *self.jobs)

        ended = [job for job in self.jobs if job.status in TERMINAL][10:]
        self.jobs = tuple(job for job in self.jobs if job not in ended)

    def run(self, walltimes: int, step_s: float) -> list[int]:
        """The numbers of ready replicas, starting when all wanted ones were first ready."""
        seen: list[int] = []
        until = START + timedelta(
            seconds=self.queue_s(0) + self.load_s + walltimes * self.walltime_s
        )
        while self.now < until:
            self.step(step_s)
            if seen or self.ready >= self.wanted:
                seen.append(self.ready)

        return seen


def history(queue_s: float, load_s: float) -> StartHistory:
    return StartHistory(10, queue_s, queue_p90_s=queue_s, load_p50_s=load_s, load_p90_s=load_s)


def test_an_endpoint_that_wakes_tells_when_it_is_expected() -> None:
    """Based on the start that its site expects and recent loading times, otherwise on the history
    of queue and loading times."""
    site = Site(3600, lambda _: 900, 60, history(600, 60))
    assert next_ready_at(site.endpoint, site.now) is None, "nothing starts"
    site.step(1)
    [waiting] = site.endpoint.replicas
    by_history = next_ready_at(site.endpoint, site.now)
    assert by_history == waiting.created_at + timedelta(seconds=660)
    told = replace(waiting, expected_start=site.now + timedelta(seconds=300))
    by_site = replace(site.endpoint, replicas=(told,))
    assert next_ready_at(by_site, site.now) == site.now + timedelta(seconds=360)
    unknown = replace(site.endpoint, starts={})
    assert next_ready_at(unknown, site.now) is None
    assert next_ready_at(site.endpoint, site.now + timedelta(seconds=700)) is None, (
        "longer than expected"
    )


@settings(max_examples=10)
@given(
    walltime_s=st.integers(600, 1800),
    queue=st.floats(0, 5),
    load=st.floats(0.001, 0.5),
    wanted=st.integers(1, 3),
)
def test_no_gap_over_several_walltimes(
    walltime_s: int, queue: float, load: float, wanted: int
) -> None:
    queue_s = queue * walltime_s
    load_s = load * walltime_s
    site = Site(
        walltime_s,
        lambda _: queue_s,
        load_s=load_s,
        history=history(queue_s, load_s),
        wanted=wanted,
    )
    seen = site.run(walltimes=3, step_s=walltime_s / 35)
    assert seen
    assert min(seen) >= wanted
    assert site.submitted <= wanted * (2 + (4 + queue + load + 1) / (0.9 - min(load, 0.4)) + 4)


def test_jobs_that_never_become_ready_are_not_submitted_without_end() -> None:
    """The replicas take longer to load than their walltime. Each is followed by the next one, some
    time apart."""
    site = Site(600, lambda _: 0, 700, history(0, 700))
    for _ in range(600):
        site.step(1)
    assert 2 <= site.submitted <= 1 + 600 / (0.1 * 600)


@pytest.mark.parametrize(
    ("queue_s", "load_s", "due_s"),
    [
        (0, 60, 0.9 * 3600),  # the floor, which is a fraction of the walltime
        (600, 60, 3600 - 660 - 180),  # the time that the successor needs, and the margin
        (7200, 60, 0),  # at once: longer than the walltime
    ],
)
def test_when_the_successor_of_a_running_job_is_due(
    queue_s: float, load_s: float, due_s: float
) -> None:
    running = ReplicaSnapshot(
        SessionId("1"), Status.RUNNING, START, START, START, group="hpc", walltime_s=3600,
        ends_at=START + timedelta(seconds=3600),
    )  # fmt: skip
    site = Site(3600, lambda _: queue_s, load_s, history(queue_s, load_s), jobs=(running,))
    due = successor_due_at(site.endpoint, running, START)
    assert due is not None
    assert max(0.0, (due - START).total_seconds()) == pytest.approx(due_s, abs=5)


def test_expected_start_of_the_site_counts_more_than_history() -> None:
    waits = ReplicaSnapshot(
        SessionId("1"), Status.QUEUED, START, START, group="hpc", walltime_s=3600,
        expected_start=START + timedelta(hours=5),
    )  # fmt: skip
    site = Site(3600, lambda _: 60, 30, history(60, 30), jobs=(waits,))
    assert ready_expected_at(site.endpoint, waits, START) == START + timedelta(hours=5, seconds=30)
    told = replace(waits, expected_start=None)
    assert ready_expected_at(site.endpoint, told, START) == START + timedelta(seconds=90)
    assert ready_expected_at(site.endpoint, told, START + timedelta(hours=1)) == START + timedelta(
        hours=1
    )


def test_successor_that_will_be_late_is_announced_before_the_walltime_ends() -> None:
    queue = {0: 10.0, 1: 10.0}
    site = Site(3600, lambda n: queue.get(n, 3 * 3600.0), 30, history(10, 30))
    while site.submitted < 3 and site.now < START + timedelta(days=1):
        site.step(30)

    waits = site.jobs[0]
    site.jobs = (replace(waits, expected_start=site.now + timedelta(hours=3)), *site.jobs[1:])
    late = late_successor(site.endpoint, site.now)
    assert late is not None
    ending, expected = late
    assert ending.ends_at is not None
    assert site.now < ending.ends_at
    assert expected == site.now + timedelta(hours=3, seconds=30)


def test_job_whose_successor_is_due_is_neither_stopped_nor_drained_before_that_one_serves() -> None:
    site = Site(600, lambda _: 1800.0, 10, history(1800, 10))
    seen = site.run(walltimes=8, step_s=5)
    assert min(seen[len(seen) // 2 :]) >= 1
    assert all(job.reason in (Reason.NONE, Reason.WALLTIME) for job in site.jobs)


def test_successor_that_waits_longer_than_all_before_is_announced_though_the_site_says_nothing() -> (
    None
):
    site = Site(3600, lambda n: 10.0 if n < 1 else 3 * 3600.0, 30, history(10, 30))
    announced: list[datetime] = []
    while site.ready or not site.submitted or site.now < START + timedelta(seconds=120):
        site.step(5)
        if late_successor(site.endpoint, site.now) is not None:
            announced.append(site.now)

    assert announced
    ended = START + timedelta(seconds=3610)
    assert announced[0] < ended - timedelta(seconds=60)

    # Once another one serves, there is nothing left to report.
    while not site.ready:
        site.step(60)

    site.step(5)
    assert late_successor(site.endpoint, site.now) is None


def test_successor_that_a_quota_of_node_hours_holds_is_not_expected() -> None:
    site = Site(3600, lambda _: 300.0, 60, history(300, 60))
    while site.submitted < 2:
        site.step(20)

    assert late_successor(site.endpoint, site.now) is None
    assert holds_next(site.endpoint) is Reason.NONE
    site.jobs = (
        replace(site.jobs[0], status=Status.PENDING, held=Reason.NODE_HOURS),
        *site.jobs[1:],
    )
    assert late_successor(site.endpoint, site.now) == (site.jobs[1], None)
    assert holds_next(site.endpoint) is Reason.NODE_HOURS


def test_successor_in_time_is_not_announced_as_late() -> None:
    site = Site(3600, lambda _: 300.0, 60, history(600, 60))
    site.run(walltimes=3, step_s=20)
    assert not site.warned
    assert late_successor(replace(site.endpoint, deleted=True), site.now) is None


@pytest.mark.parametrize("walltime_s", [120, 600, 3600, 86_400])
@pytest.mark.parametrize("queue", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("load_s", [5.0, 30.0])
def test_what_successors_cost(walltime_s: int, queue: float, load_s: float) -> None:
    """Over ten walltimes, each job loses at most its loading time and a tenth of its walltime, as
    long as queues stay the same."""
    queue_s = queue * walltime_s
    site = Site(walltime_s, lambda _: queue_s, load_s, history(queue_s, load_s))
    site.run(walltimes=10, step_s=walltime_s / 120)
    served_s = 0.9 * walltime_s - load_s - walltime_s / 40
    in_queue = 1 + queue * walltime_s / served_s
    assert site.submitted <= 10 * walltime_s / served_s + in_queue + 1


@pytest.mark.parametrize(
    ("walltime_s", "load_s", "told"),
    [
        (3600, 30, ""),
        (120, 5, ""),
        (
            120,
            30,
            "its model takes 30s to load, so a job serves for 1m18s of it; a longer hpc.walltime_s",
        ),
        (600, 600, "its model takes 10m00s to load, so a job may not serve at all"),
    ],
)
def test_a_walltime_that_is_short_for_its_model_is_told(
    walltime_s: float, load_s: float, told: str
) -> None:
    site = Site(walltime_s, lambda _: 0.0, 1.0, history(0.0, load_s))
    while not site.ready:
        site.step(1)

    given: dict[str, Any] = {
        "id": site.jobs[0].session_id,
        "status": Status.RUNNING,
        "resource_group": "hpc",
    }
    view = SessionView.model_construct(**given)
    found = explain_short(view, site.endpoint)
    assert told in found
    assert bool(found) is bool(told)


@pytest.mark.parametrize("walltime_s", [120, 3600])
def test_a_successor_that_comes_too_late_leaves_time_to_finish(walltime_s: int) -> None:
    """The queue is much longer than before: the job drains before its site kills it."""
    site = Site(walltime_s, lambda n: 0 if n == 0 else 10 * walltime_s, 5, history(5, 5))
    drained_at = None
    while not any(job.status in TERMINAL for job in site.jobs):
        site.step(1)
        if drained_at is None and any(job.draining_since for job in site.jobs):
            drained_at = site.now

    [first] = (job for job in site.jobs if job.session_id == "0")
    assert drained_at is not None
    assert first.ends_at is not None
    left_s = (first.ends_at - drained_at).total_seconds()
    assert left_s == pytest.approx(min(LAST_S, 0.1 * walltime_s), abs=1.5)
