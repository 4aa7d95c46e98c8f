"""Lease expiry: never before the node has stopped the program, no matter what the clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.ids import AgentId, KernelId
from moorage.manager.lifecycle.kernel_leases import LONGEST_PAUSE_S, KernelLeaseWatch, LeasedKernel

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def kernel(contact: datetime = T0, lease_s: float = 60) -> LeasedKernel:
    return LeasedKernel(KernelId("k"), AgentId("node-1"), contact, lease_s, stop_grace_s=10)


def expires_after(
    watch: KernelLeaseWatch, one: LeasedKernel, start: float, step: float = 2
) -> float:
    """Returns how long after ``start`` the watch lets the lease expire."""
    at = start
    while not watch.expired([one], at):
        at += step
    return at - start


def test_lease_expires_after_its_time_the_grace_period_and_a_margin() -> None:
    assert 60 + 10 < expires_after(KernelLeaseWatch(), kernel(), 100) < 60 + 10 + 20


def test_contact_starts_it_again() -> None:
    watch = KernelLeaseWatch()
    for at in range(0, 70, 2):
        assert not watch.expired([kernel()], at)
    assert expires_after(watch, kernel(T0 + timedelta(seconds=1)), 70) > 60


def test_pause_or_leap_of_the_clock_starts_it_again() -> None:
    watch = KernelLeaseWatch()
    watch.expired([kernel()], 0)
    assert not watch.expired([kernel()], 10_000)
    assert expires_after(watch, kernel(), 10_002) > 60


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60))
def test_never_expires_before_the_node_has_ended_it(looks: list[tuple[float, bool]]) -> None:
    """``looks``: real seconds until each check, and whether there was a contact since the previous
    one."""
    watch = KernelLeaseWatch()
    now = 0.0
    contact = T0
    at = 0.0
    for pause, contacted in looks:
        if contacted:  # as late as possible: just before the check
            contact = contact + timedelta(seconds=1)
            at = now + pause

        now += pause
        if watch.expired([kernel(contact)], now):
            assert now - at >= 60 + 10

    assert LONGEST_PAUSE_S < 30
