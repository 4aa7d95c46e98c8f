"""Kernel leases on an agent: what counts as contact, and when it is requested."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.kernel.leases import KernelLeases
from moorage.common.aio.clock import ManualClock
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

SPEC = KernelSpec(
    KernelId("k"),
    SessionId("s"),
    session_name="job",
    session_type=SessionType.BATCH,
    runtime="process",
    engine="custom",
    served_name="job",
    lease_s=100.0,
)


@pytest.fixture
def clock() -> ManualClock:
    made = ManualClock()
    made.advance(1000)
    return made


@pytest.fixture
def leases(tmp_path: Path, clock: ManualClock) -> KernelLeases:
    made = KernelLeases(tmp_path, clock)
    made.hold(SPEC)
    return made


def contact(tmp_path: Path) -> float:
    """As the kernels' supervisors read it."""
    return float((tmp_path / "lease").read_text())


def test_contact_counts_from_when_the_report_was_sent(
    tmp_path: Path, clock: ManualClock, leases: KernelLeases
) -> None:
    """The manager counts from when it stored the report: if the agent counted from the answer, both
    attempts could run the program."""
    sent_at = leases.request()
    assert sent_at == 1_000_000
    clock.advance(60)
    leases.renew(sent_at)
    assert contact(tmp_path) == 1000
    assert leases.due_in() == 0  # a quarter of the lease has already passed


def test_late_answers_do_not_shorten_a_lease(
    tmp_path: Path, clock: ManualClock, leases: KernelLeases
) -> None:
    first = leases.request()
    clock.advance(30)
    second = leases.request()
    leases.renew(second)
    leases.renew(first)
    leases.renew(0)
    assert contact(tmp_path) == 1030
    assert leases.due_in() == 25


def test_contact_is_asked_for_after_a_quarter_and_again_a_twentieth_later(
    clock: ManualClock, leases: KernelLeases
) -> None:
    leases.renew(leases.request())
    assert (leases.due_in(), leases.request()) == (25, 0)
    clock.advance(25)
    assert leases.request() == 1_025_000
    assert (leases.due_in(), leases.request()) == (5, 0)
    clock.advance(5)
    assert leases.request() == 1_030_000


def test_the_shortest_lease_counts_while_its_kernel_exists(leases: KernelLeases) -> None:
    leases.renew(leases.request())
    for name in ("short", "as short"):
        leases.hold(replace(SPEC, kernel_id=KernelId(name), lease_s=40.0))

    leases.hold(replace(SPEC, kernel_id=KernelId("none"), lease_s=0.0))
    assert leases.due_in() == 10
    leases.release(KernelId("short"))
    leases.release(KernelId("none"))
    assert leases.due_in() == 10
    leases.release(KernelId("as short"))
    assert leases.due_in() == 25
    leases.release(KernelId("k"))
    assert (leases.due_in(), leases.request()) == (float("inf"), 0)


async def test_a_kernel_starts_once_half_of_its_lease_is_left(
    tmp_path: Path, clock: ManualClock, leases: KernelLeases
) -> None:
    asked = 0

    def count() -> None:
        nonlocal asked
        asked += 1

    leases.on_due = count
    assert await leases.acquire(0.0) is None
    leases.renew(leases.request())
    clock.advance(50)
    held = await leases.acquire(100.0)
    assert held is not None
    assert (held.seconds, held.contact, held.file, asked) == (
        100.0,
        1000.0,
        str(tmp_path / "lease"),
        0,
    )
    clock.advance(0.5)
    waiting = asyncio.ensure_future(leases.acquire(100.0))
    await asyncio.sleep(0)
    assert (waiting.done(), asked) == (False, 1)
    leases.renew(leases.request())
    again = await waiting
    assert again is not None
    assert again.contact == 1050.5
