"""Tables of Slurm's answers and the resulting kernel states."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.runtimes.base import RuntimeObservation
from moorage.agent.runtimes.slurm.commands import parse_jobs
from moorage.agent.runtimes.slurm.interpretation import (
    ENDED,
    HOLDING,
    WAITING,
    Exit,
    Marks,
    SlurmJob,
    exit_code,
    explain,
    interpret,
)
from moorage.common.model.status import ObservedState as S

UP = ("192.0.2.7", 4711)


def seen(
    state: str, *, reason: str = "None", marks: Marks | None = None, **fields: Any
) -> RuntimeObservation:
    return interpret(SlurmJob("7", "mg-x", state, reason, **fields), marks or Marks())


@pytest.mark.parametrize("state", sorted(WAITING))
def test_waiting_jobs_are_queued_with_a_reason_even_after_an_earlier_run(state: str) -> None:
    found = seen(state, start=100.0, marks=Marks(address=UP, exit=Exit(1)))
    assert (found.state, found.expected_start, found.ends_at) == (S.QUEUED, 100.0, None)
    assert found.detail


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("None", "has not considered it yet"),
        ("Priority", "Priority: jobs with a higher priority"),
        (
            "ReqNodeNotAvail, UnavailableNodes:cn[1-4]",
            "UnavailableNodes:cn[1-4]: nodes that it needs",
        ),
        ("PartitionTimeLimit", "more walltime than the partition allows"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_reasons_are_explained(reason: str, shown: str) -> None:
    assert shown in explain(SlurmJob("7", "mg-x", "PENDING", reason))


@pytest.mark.parametrize("state", sorted(HOLDING))
def test_jobs_on_a_node_run_once_their_launcher_says_so(state: str) -> None:
    assert seen(state, end=900.0).state is S.CREATING
    found = seen(state, end=900.0, marks=Marks(address=UP))
    assert (found.state, found.address, found.ends_at) == (S.RUNNING, UP, 900.0)
    assert bool(found.detail) is (state != "RUNNING")
    # A batch program has no address.
    assert seen(state, marks=Marks(address=("192.0.2.7", 0))).address is None


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("COMPLETED", 0, {"state": S.EXITED, "exit_code": 0}),
        ("FAILED", 7 << 8, {"state": S.EXITED, "exit_code": 7}),
        ("FAILED", 9, {"state": S.EXITED, "exit_code": -9}),
        ("TIMEOUT", 0, {"state": S.EXITED, "exit_code": -9, "walltime_over": True}),
        ("DEADLINE", 0, {"state": S.EXITED, "exit_code": -9, "walltime_over": True}),
        ("OUT_OF_MEMORY", 0, {"state": S.EXITED, "exit_code": -9, "oom": True}),
        ("PREEMPTED", 0, {"state": S.EXITED, "exit_code": -15, "walltime_over": False}),
        ("CANCELLED", 0, {"state": S.EXITED, "exit_code": -15, "never_started": False}),
        ("NODE_FAIL", 0, {"state": S.GONE}),
        ("BOOT_FAIL", 0, {"state": S.GONE}),
    ],
)
def test_ends_of_started_jobs(state: str, status: int, expected: dict[str, Any]) -> None:
    found = seen(state, status=status, marks=Marks(address=UP))
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED"])
def test_job_that_ended_before_its_program_says_why(state: str) -> None:
    found = seen(state, reason="RaisedSignal", status=1 << 8, marks=Marks(output="no such python"))
    assert (found.state, found.never_started) == (S.EXITED, True)
    assert ("no such python" in found.detail) is (state != "CANCELLED")
    # The job was cancelled by the agent itself, which does not count as a failure to start.
    stopped = seen("CANCELLED", marks=Marks(stopped=True))
    assert (stopped.never_started, stopped.exit_code) == (False, -15)


@pytest.mark.parametrize(
    "job", [None, SlurmJob("7", "mg-x", "RUNNING"), SlurmJob("7", "mg-x", "COMPLETED")]
)
def test_launcher_knows_the_end_before_slurm_and_after_slurm_has_forgotten(
    job: SlurmJob | None,
) -> None:
    found = interpret(job, Marks(address=UP, exit=Exit(3)))
    assert (found.state, found.exit_code) == (S.EXITED, 3)
    assert found.all_exited is (job is None or job.state != "RUNNING")


@pytest.mark.parametrize(
    ("counted", "state", "oom"),
    [(True, "RUNNING", True), (False, "OUT_OF_MEMORY", True), (False, "FAILED", False)],
)
def test_memory_that_ran_out_is_known_from_the_launcher_or_from_slurm(
    counted: bool, state: str, oom: bool
) -> None:
    """This also applies if a process other than the main program was killed."""
    found = interpret(SlurmJob("7", "mg-x", state), Marks(address=UP, exit=Exit(1, oom=counted)))
    assert (found.exit_code, found.oom) == (1, oom)


@pytest.mark.parametrize(
    ("at", "code", "reason", "stopped", "over"),
    [
        (995.0, -15, "", False, True),
        (995.0, -15, "terminated", False, True),
        (995.0, 0, "terminated", False, True),
        (995.0, 143, "terminated", False, True),
        (995.0, 0, "terminated", True, False),
        (995.0, 0, "no-contact", False, False),
        (995.0, -15, "", True, False),
        (995.0, 0, "", False, False),
        (995.0, 1, "", False, False),
        (500.0, -15, "", False, False),
        (500.0, 0, "terminated", False, False),
    ],
)
def test_kill_at_the_walltime_is_told_from_others(
    at: float, code: int, reason: str, stopped: bool, over: bool
) -> None:
    marks = Marks(address=UP, exit=Exit(code, reason, at=at), ends_at=1000.0, stopped=stopped)
    assert interpret(None, marks).walltime_over is over


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (Exit(0, "terminated", at=500.0), -15),
        (Exit(0, "", at=500.0), 0),
        (Exit(3, "terminated", at=500.0), 3),
        (Exit(0, "terminated", at=995.0), 0),  # because of the walltime
    ],
)
def test_what_ends_when_it_is_asked_to_has_not_succeeded(end: Exit, code: int) -> None:
    """A clean exit after scancel."""
    seen = interpret(
        SlurmJob("7", "mg-x", "CANCELLED"), Marks(address=UP, exit=end, ends_at=1000.0)
    )
    assert seen.exit_code == code
    assert ("asked to end" in seen.detail) is (code == -15)


def test_job_that_the_site_does_not_list() -> None:
    assert interpret(None, Marks(), submitted=True).state is S.GONE
    assert interpret(None, Marks(), submitted=False).state is S.QUEUED
    never = interpret(None, Marks(), submitted=False, never=True)
    assert (never.state, never.never_started) == (S.EXITED, True)
    assert interpret(None, Marks(exit=Exit(None, "no-contact"))).lease_expired


STATES = st.sampled_from(sorted(WAITING | HOLDING | ENDED | {"A_NEW_STATE"}))
EXITS = st.builds(
    Exit, st.none() | st.integers(-15, 255), st.just(""), st.booleans(), st.floats(0, 2000)
)
MARKS = st.builds(
    Marks, st.none() | st.just(UP), st.none() | EXITS, st.none() | st.just(1000.0), st.booleans()
)


@given(STATES, MARKS)
def test_active_job_is_never_gone_and_an_ended_one_never_runs(state: str, marks: Marks) -> None:
    job = SlurmJob("7", "mg-x", state, "None")
    found = interpret(job, marks).state
    assert found is not S.UNKNOWN
    if job.is_active:
        assert found is not S.GONE
        assert found is not S.EXITED or marks.exit is not None
    else:
        assert found in (S.EXITED, S.GONE)


def test_rows_of_squeue() -> None:
    rows = (
        "12   |RUNNING |None |100 |700 |0 |moorage:0190-a |mg-12345678-123456789abc-1 |\n"
        "13|PENDING|Priority|N/A|N/A|0|(null)|somebody | else|\n"
        "nonsense\n"
    )
    first, other = parse_jobs(rows)
    assert first == SlurmJob(
        "12",
        "mg-12345678-123456789abc-1",
        state="RUNNING",
        reason="None",
        start=100.0,
        end=700.0,
        status=0,
        kernel_id="0190-a",
    )
    assert (other.name, other.start, other.kernel_id) == ("somebody | else", None, "")


def test_wait_statuses() -> None:
    assert [exit_code(status) for status in (0, 256, 9, 15)] == [0, 1, -9, -15]
