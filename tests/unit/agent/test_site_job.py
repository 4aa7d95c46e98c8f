"""Kernel jobs at a site: what is reported about them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moorage.agent.kernel.outcome import determine_outcome
from moorage.agent.kernel.site_job import WALLTIME_GRACE_S, SiteJobFacts
from moorage.agent.runtimes import RuntimeObservation
from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort
from moorage.common.model.status import ObservedState as S

SEEN = Observation(KernelId("k"), SessionId("s"), S.QUEUED)


def test_times_of_the_site_are_reported_once_they_differ() -> None:
    job = SiteJobFacts()
    assert not job.note(RuntimeObservation(S.QUEUED))
    assert job.reported(SEEN) is SEEN
    assert job.note(RuntimeObservation(S.QUEUED, expected_start=500))
    assert not job.note(RuntimeObservation(S.QUEUED, expected_start=500.5))
    assert job.reported(SEEN).expected_start == 500
    assert job.note(RuntimeObservation(S.CREATING, ends_at=900))
    assert not job.note(RuntimeObservation(S.UNKNOWN))
    assert (job.reported(SEEN).expected_start, job.reported(SEEN).ends_at) == (0, 900)


def test_a_job_out_of_reach_is_told_once_until_it_is_reached_again() -> None:
    job = SiteJobFacts()
    runs = replace(SEEN, state=S.RUNNING)
    gone = RuntimeObservation(
        S.RUNNING, unreachable="its engine cannot be reached: 1", kept_until=2000
    )
    assert job.note(gone)
    assert not job.note(replace(gone, unreachable="its engine cannot be reached: 2"))
    told = job.reported(runs)
    assert (told.unhealthy, told.kept_until) == ("its engine cannot be reached: 1", 2000)
    assert not job.note(RuntimeObservation(S.UNKNOWN)), "the site says nothing at present"
    assert job.reported(runs).unhealthy
    assert not job.reported(SEEN).unhealthy  # it is no longer running
    assert job.note(RuntimeObservation(S.RUNNING))
    assert job.reported(runs) is runs


@pytest.mark.parametrize(
    ("state", "ends_at", "now", "ends"),
    [
        (S.UNKNOWN, 1000.0, 1000 + WALLTIME_GRACE_S, True),
        (S.UNKNOWN, 1000.0, 999 + WALLTIME_GRACE_S, False),
        (S.UNKNOWN, None, 1e9, False),  # its walltime has not begun, or is not known
        (
            S.RUNNING,
            1000.0,
            1e9,
            False,
        ),  # the site says that it is running, whatever the clocks show
        (S.QUEUED, 1000.0, 1e9, False),
    ],
)
def test_a_silent_job_ends_a_while_after_its_walltime(
    state: S, ends_at: float | None, now: float, ends: bool
) -> None:
    job = SiteJobFacts()
    seen = RuntimeObservation(state, ends_at=ends_at)
    job.note(seen)
    ended = job.outlived(seen, now)
    assert (ended is not None) is ends
    assert ended is None or (ended.state, ended.walltime_over) == (S.EXITED, True)


def test_end_of_the_walltime_is_a_reason_of_its_own() -> None:
    ended = determine_outcome(
        S.EXITED, -9, oom=False, refused=False, detail="", cause=None, walltime_over=True
    )
    assert (ended.reason, ended.exit_code) == (Reason.WALLTIME, -9)


def test_address_is_reported_where_the_job_listens_and_may_change() -> None:
    job = SiteJobFacts(finds_address=True)
    assert job.awaits_address
    assert job.note(RuntimeObservation(S.CREATING, address=("node-7", 7001)))
    assert not job.awaits_address
    assert not job.note(RuntimeObservation(S.UNKNOWN)), "an address that is not known now stays"
    assert job.note(RuntimeObservation(S.RUNNING, address=("node-7", 7002)))
    seen = job.reported(SEEN)
    assert (seen.host, seen.port) == ("node-7", 7002)


def test_service_ports_are_reported_once_the_job_has_picked_them() -> None:
    job = SiteJobFacts(finds_address=True)
    declared = replace(SEEN, apps=(AppPort("web", 0), AppPort("db", 0, "tcp")))
    assert job.reported(declared).apps == ()
    found = RuntimeObservation(
        S.RUNNING, address=("node-7", 0), app_ports={"web": 7003, "db": 7004}
    )
    assert job.note(found)
    assert not job.awaits_address
    seen = job.reported(declared)
    assert (seen.host, seen.apps) == (
        "node-7", (AppPort("web", 7003, inner=7003), AppPort("db", 7004, "tcp", inner=7004)),
    )  # fmt: skip
