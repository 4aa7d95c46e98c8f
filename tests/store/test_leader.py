"""Leader election: which manager leads, for how long, and how clocks may behave during that
time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from moorage.common.aio.clock import ManualClock
from moorage.manager.loops import Leader, leader
from moorage.manager.loops.leader import LEASE_S, LONGEST_LEASE_S, MARGIN_S
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import open_store


@pytest.fixture
def long_leases() -> None:
    """Leases have their normal length."""


@pytest_asyncio.fixture
async def other(store: Store, migrated_database: str) -> AsyncIterator[Store]:
    """The store of a second manager."""
    async with open_store(migrated_database) as made:
        yield made


def two_leaders(store: Store, other: Store) -> tuple[ManualClock, Leader, Leader]:
    clock = ManualClock()
    return clock, Leader(store, clock), Leader(other, clock)


async def set_lease(store: Store, seconds: float) -> None:
    """The lease ends in this many seconds by the database's clock."""
    await store.database.fetch(
        "UPDATE leases SET expires_at = now() + make_interval(secs => $1)", seconds
    )


async def test_a_follower_takes_over_when_the_lease_ends(store: Store, other: Store) -> None:
    clock, first, second = two_leaders(store, other)
    await first.run_once()
    await second.run_once()
    assert (first.term is None, second.term) == (False, None)
    clock.advance(LEASE_S - MARGIN_S)
    assert first.term is None, "it stops before its lease is over"
    await set_lease(store, -0.001)
    await second.run_once()
    assert second.term is not None
    await first.run_once()
    assert first.term is None


async def test_a_lease_that_lasts_is_its_holders_and_one_that_has_ended_is_a_new_term(
    store: Store,
) -> None:
    """This tests only the statement, because a leader checks the lease before it runs the
    statement."""
    term = await store.leases.acquire("one", 60)
    assert term is not None
    assert await store.leases.acquire("two", 60) is None
    assert await store.leases.acquire("one", 60) == term
    await set_lease(store, -0.001)
    assert await store.leases.acquire("one", 60) == term + 1
    await set_lease(store, -0.001)
    assert await store.leases.acquire("two", 60) == term + 2
    assert await store.leases.acquire("one", 60) is None


async def test_a_renewed_lease_stays(store: Store, other: Store) -> None:
    clock, first, second = two_leaders(store, other)
    for _ in range(20):
        await first.run_once()
        await second.run_once()
        clock.advance(LEASE_S / 4)
    assert first.term == 1
    assert second.term is None


async def test_the_database_clock_jumps_back_and_the_leader_is_gone(
    store: Store, other: Store
) -> None:
    """The lease would last another hour, but followers measure it by their own clocks."""
    clock, first, second = two_leaders(store, other)
    await first.run_once()
    await set_lease(store, 3600)
    await second.run_once()
    clock.advance(LONGEST_LEASE_S - 0.1)
    await second.run_once()
    assert second.term is None
    clock.advance(0.2)
    await second.run_once()
    assert second.term == 2


async def test_the_database_clock_jumps_back_and_the_leader_lives(
    store: Store, other: Store
) -> None:
    clock, first, second = two_leaders(store, other)
    await first.run_once()
    await set_lease(store, 3600)

    for _ in range(10):
        await second.run_once()
        clock.advance(LEASE_S / 4)
        await first.run_once()

    assert first.term == 1
    assert second.term is None


async def test_the_database_clock_jumps_forward(store: Store, other: Store) -> None:
    """The lease is considered over. The manager that acquires it begins a new term, and the former
    leader stops."""
    _, first, second = two_leaders(store, other)
    await first.run_once()
    await set_lease(store, -3600)
    await second.run_once()
    assert second.term == 2
    await first.run_once()
    assert first.term is None


async def test_a_lease_of_the_previous_release_is_left_alone(store: Store, other: Store) -> None:
    """It lasts 10 s and is renewed every 3 s."""
    await store.leases.acquire("previous release", 10)
    clock = ManualClock()
    follower = Leader(other, clock)
    for _ in range(3):
        await follower.run_once()
        clock.advance(3.3)
        await store.leases.acquire("previous release", 10)
    assert follower.term is None


async def test_a_leader_that_was_replaced_writes_nothing(store: Store, other: Store) -> None:
    """The leader was stopped (SIGSTOP) while another manager took over, and its clock has not
    moved."""
    _, first, second = two_leaders(store, other)
    await first.run_once()
    await set_lease(store, -1)
    await second.run_once()
    assert first.term == 1, "it does not know yet"
    assert await store.leases.renew("anybody", 1, LEASE_S) is None
    await first.run_once()
    assert first.term is None


async def test_an_outage_that_nobody_used_keeps_the_term(store: Store) -> None:
    clock = ManualClock()
    leader = Leader(store, clock)
    await leader.run_once()
    await set_lease(store, -60)
    clock.advance(60)
    assert leader.term is None
    await leader.run_once()
    assert leader.term == 1


async def test_resigning_wakes_a_follower_at_once(
    store: Store, other: Store, clock: StoreClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LEASE_S", "LONGEST_LEASE_S", "RENEWAL_S"):  # no loop checks by itself
        monkeypatch.setattr(leader, name, 600.0)

    async with Leader(store, clock) as first, Leader(other, clock) as second:
        assert second.term is None
        await first.resign()
        async with asyncio.timeout(30):
            while second.term is None:
                await asyncio.sleep(0.001)

        lease = await store.leases.find()
        assert lease is not None
        assert (first.term, second.term, lease.term) == (None, 2, 2)


async def test_a_late_renewal_does_not_bring_the_lease_back(store: Store) -> None:
    """A renewal that was in progress when its manager resigned."""
    term = await store.leases.acquire("gone", LEASE_S)
    assert term is not None
    await store.leases.release("gone", term)
    assert not await store.leases.renew("gone", term, LEASE_S)


async def test_a_follower_sleeps_while_the_lease_lasts(store: Store, other: Store) -> None:
    """An idle follower reads one row at a time, as seldom as possible while elections are still
    held on time."""
    clock, first, second = two_leaders(store, other)
    await first.run_once()
    await set_lease(store, LEASE_S)
    await second.run_once()
    assert second.loop.interval_s == first.loop.interval_s
    clock.advance(LEASE_S - 0.1)
    await second.run_once()
    assert 0 < second.loop.interval_s <= 0.1
