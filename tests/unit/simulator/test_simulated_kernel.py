"""Simulated kernels: the state that follows from a script, stops and kills."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.runtimes.simulated import SIGKILL, SIGTERM, KernelScript, SimulatedKernel
from moorage.common.model.status import ObservedState as S

SCRIPT = KernelScript(start_s=1, run_s=10, exit_code=3, stop_s=2)


def kernel(
    script: KernelScript = SCRIPT, stop_at: float | None = None, grace_s: float = 5
) -> SimulatedKernel:
    simulated = SimulatedKernel(script, 100)
    if stop_at is not None:
        simulated.stop(stop_at, grace_s)
    return simulated


def exit_of(simulated: SimulatedKernel) -> tuple[float, int | None]:
    """Time and exit code, as a caller with timers sees them."""
    now = simulated.created_at
    while simulated.alive:
        at = simulated.next_change
        assert at is not None
        assert at > now or now == simulated.created_at, "every timer makes progress"
        now = at
        simulated.advance(now)
    return now, simulated.exit_code


@pytest.mark.parametrize(
    ("simulated", "expected"),
    [
        (kernel(), (111, 3)),
        (kernel(KernelScript(start_s=1, refusal="no")), (101, None)),
        (kernel(stop_at=100), (102, SIGTERM)),
        (kernel(stop_at=104), (106, SIGTERM)),
        (kernel(stop_at=104, grace_s=1), (105, SIGKILL)),
        (kernel(KernelScript(stop_s=None), stop_at=104), (109, SIGKILL)),
        (kernel(stop_at=110), (111, 3)),  # it exits by itself before it reacts
    ],
)
def test_exit(simulated: SimulatedKernel, expected: tuple[float, int | None]) -> None:
    assert exit_of(simulated) == expected


def test_kernel_runs_after_its_start_time() -> None:
    simulated = kernel()
    simulated.advance(100.9)
    assert (simulated.state, simulated.next_change) == (S.CREATING, 101)
    simulated.advance(101)
    assert (simulated.state, simulated.next_change, simulated.exit_code) == (S.RUNNING, 111, None)


def test_second_stop_can_only_bring_the_exit_forward() -> None:
    simulated = kernel(KernelScript(stop_s=None), stop_at=104)
    simulated.stop(105, 60)
    assert simulated.next_change == 100
    simulated.advance(108)
    assert simulated.next_change == 109
    simulated.kill(108)
    assert (simulated.alive, simulated.exit_code, simulated.next_change) == (False, SIGKILL, None)


def test_hung_kernel_survives_a_kill_until_it_is_released() -> None:
    simulated = kernel(KernelScript(hangs=True), stop_at=104)
    simulated.advance(105)
    simulated.kill(105)
    assert (simulated.state, simulated.next_change) == (S.RUNNING, None)
    simulated.hung = False
    simulated.advance(105)
    assert (simulated.state, simulated.exit_code) == (S.EXITED, SIGTERM)


@given(st.lists(st.floats(100, 120), max_size=6).map(sorted), st.floats(100, 120), st.floats(0, 9))
def test_polling_and_timers_agree(polls: list[float], stop_at: float, grace_s: float) -> None:
    timed = kernel(stop_at=stop_at, grace_s=grace_s)
    polled = kernel(stop_at=stop_at, grace_s=grace_s)
    at, code = exit_of(timed)
    for now in polls:
        polled.advance(now)
        assert polled.alive == (now < at)
    polled.advance(200)
    assert polled.exit_code == code


def test_job_waits_in_its_queue_and_ends_with_its_walltime() -> None:
    simulated = kernel(KernelScript(queue_s=5, start_s=1, walltime_s=8))
    seen = [(100.0, simulated.state)]
    while (at := simulated.next_change) is not None:
        simulated.advance(at)
        seen.append((at, simulated.state))
    assert seen == [(100, S.QUEUED), (105, S.CREATING), (106, S.RUNNING), (113, S.EXITED)]
    assert (simulated.exit_code, simulated.walltime_over) == (SIGTERM, True)


def test_job_that_is_cancelled_in_its_queue_never_runs() -> None:
    simulated = kernel(KernelScript(queue_s=5, walltime_s=8), stop_at=102)
    assert exit_of(simulated) == (102, SIGTERM)
    assert not simulated.walltime_over
