"""Hard budgets: by how much requests may exceed them when reports are late and no manager is
reachable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.link.messages import BudgetGrant, KeyGrant, RequestLimits
from moorage.common.link.proxy_messages import LimitShare
from moorage.manager.serving.limit_shares import StoredShares, share_of
from moorage.proxy.core.limit_subject import LimitSubject
from moorage.proxy.core.limits.ledger import COUNTED_S, Ledger, LedgerReservation, cells_needed
from moorage.proxy.core.limits.request_needs import LimitExceeded, subjects_of

NAME = "budget/project/month/tokens/vision"


def budget(hard: int, unit: str = "tokens") -> LimitSubject:
    return LimitSubject(NAME, RequestLimits(tokens_per_minute=hard), unit)


def ledger(cells: list[int] | None = None, worker: int = 0) -> Ledger:
    return Ledger([0] * cells_needed(1) if cells is None else cells, worker)


def granted(
    book: Ledger, subject: LimitSubject, tokens: int, now: float, *, prompt: int = 0
) -> LedgerReservation:
    outcome = book.reserve([subject], tokens, now, prompt)
    assert isinstance(outcome, LedgerReservation), outcome
    return outcome


def test_budgets_of_a_key_are_subjects() -> None:
    key = KeyGrant("x", budgets=(BudgetGrant(NAME, "tokens_out", 70),))
    assert subjects_of(key, None, None) == (budget(70, "tokens_out"),)


def test_what_runs_and_what_is_not_counted_yet_use_it_up() -> None:
    book = ledger()
    subject = budget(1000)
    first = granted(book, subject, 600, 0.0)
    granted(book, subject, 600, 0.0)  # one more request while anything is left
    refusal = book.reserve([subject], 1, 500.0)
    assert isinstance(refusal, LimitExceeded), "it runs for longer than any window"
    assert (refusal.is_budget, refusal.retry_s) == (True, 5)
    assert (refusal.rooms.tokens, refusal.rooms.requests) == (None, None), "it is no rate"
    book.settle(first, 100, 500.0)
    granted(book, subject, 10, 501.0)
    assert [need.used_tokens for need in book.needs([subject], 501.0)] == [600 + 100 + 10]
    book.adopt_room(LimitShare(NAME, tokens=710), 499.0 + COUNTED_S)
    for now in (501.0, 1000.0):
        assert isinstance(book.reserve([subject], 1, now), LimitExceeded)

    book.adopt_room(LimitShare(NAME, tokens=710), 500.0 + COUNTED_S)
    # usage by requests that have ended by then is in the manager's sum
    granted(book, subject, 300, 500.0 + COUNTED_S)


def test_without_a_manager_a_share_is_used_once() -> None:
    book = ledger()
    subject = budget(1000)
    granted(book, subject, 0, 0.0)
    book.adopt_room(LimitShare(NAME, tokens=100), 0.0)
    for now in (1.0, 1000.0):
        book.settle(granted(book, subject, 50, now), 50, now)

    assert isinstance(book.reserve([subject], 50, 2000.0), LimitExceeded)
    book.hold_rooms(2015.0)
    book.adopt_room(LimitShare(NAME, tokens=1), 2014.0)
    assert isinstance(book.reserve([subject], 50, 2014.0), LimitExceeded), (
        "what it has used is not in that"
    )
    book.adopt_room(LimitShare(NAME, tokens=1), 2015.0)
    granted(book, subject, 50, 2050.0)


def test_a_request_that_was_not_sent_uses_nothing() -> None:
    book = ledger()
    subject = budget(10)
    book.cancel(granted(book, subject, 600, 0.0), 0.0)
    granted(book, subject, 600, 0.0)


@pytest.mark.parametrize(
    ("unit", "used"), [("requests", 1), ("tokens", 9), ("tokens_in", 2), ("tokens_out", 7)]
)
def test_units(unit: str, used: int) -> None:
    book = ledger()
    subject = budget(1000, unit)
    reservation = granted(book, subject, 300, 0.0, prompt=100)
    reserved = {"requests": 1, "tokens": 300, "tokens_in": 100, "tokens_out": 200}[unit]
    assert book.needs([subject], 0.0)[0].used_tokens == reserved
    book.settle(reservation, 9, 1.0, 2)
    assert book.needs([subject], 1.0)[0].used_tokens == used


def test_what_a_dead_worker_reserved_is_free_again() -> None:
    cells = [0] * cells_needed(1)
    one = ledger(cells)
    other = ledger(cells, 1)
    subject = budget(10)
    granted(one, subject, 600, 0.0)
    assert isinstance(other.reserve([subject], 1, 0.0), LimitExceeded)
    other.forget_worker(0)
    granted(other, subject, 1, 0.0)


@dataclass
class World:
    """Proxies with two workers each, and a manager that every ten seconds adds up the usage that
    has reached it."""

    hard: int
    proxies: int
    summed_up: int = 0
    measured_at: float = 0.0
    used: int = 0
    shares: Mapping[str, Any] = field(default_factory=dict)
    # with the time at which the usage becomes known, and its amount
    usage: list[tuple[float, int, float]] = field(default_factory=list)
    running: list[tuple[float, int, int, LedgerReservation]] = field(default_factory=list)

    def __post_init__(self) -> None:
        memory = [[0] * cells_needed(1) for _ in range(self.proxies)]
        self.ledgers = [[ledger(cells, worker) for worker in (0, 1)] for cells in memory]
        for first, _ in self.ledgers:
            first.share_among(self.proxies)

    def run(self, now: float, subject: LimitSubject, *, is_manager_away: bool) -> None:
        for end in [one for one in self.running if one[0] <= now]:
            self.running.remove(end)
            _, number, used, reservation = end
            self.ledgers[number // 2][number % 2].settle(reservation, used, now)
            self.used += used
            self.usage.append((now + 4, used, now))

        if is_manager_away:
            self.usage = [(max(at, now + 4), used, since) for at, used, since in self.usage]
            return
        if any(at > now and now - since > 5 for at, _, since in self.usage):
            for first, _ in self.ledgers:
                first.hold_rooms(now + COUNTED_S / 2)

        if now - self.measured_at >= 10:
            self.summed_up += sum(used for at, used, _ in self.usage if at <= now)
            self.usage = [one for one in self.usage if one[0] > now]
            self.measured_at = now

        for proxy, (first, _) in enumerate(self.ledgers):
            if now % 3 != proxy % 3 or now - self.measured_at > 15:
                continue

            for need in first.needs([subject], now):
                room = max(0, self.hard - self.summed_up)
                share, stored = share_of(
                    need,
                    f"{proxy}",
                    StoredShares(NAME, 0, shares=self.shares, now=now, room=room),
                    self.proxies,
                )
                self.shares = stored.shares
                first.adopt_room(share, now)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(1, 90),
        st.integers(0, 100),
        st.integers(0, 60),
        st.integers(0, 3),
    ),
    min_size=5,
    max_size=60,
)


@examples(150)
@given(STEPS, st.integers(1, 2), st.integers(200, 2000), st.sets(st.integers(0, 60), max_size=40))
def test_bound(
    steps: list[tuple[int, int, int, int, int]], proxies: int, hard: int, away: set[int]
) -> None:
    """The excess is one request per proxy, no matter which component is away and how late the usage
    becomes known."""
    world = World(hard, proxies)
    subject = budget(hard)
    now = 0.0
    largest = 0
    for number, (worker, reserves, part, lasts, gap) in enumerate(steps):
        which = worker % (2 * proxies)
        book = world.ledgers[which // 2][which % 2]
        outcome = book.reserve([subject], reserves, now)
        if isinstance(outcome, LedgerReservation):
            largest = max(largest, reserves)
            world.running.append((now + lasts, which, reserves * part // 100, outcome))

        for _ in range(gap):
            now += 1
            world.run(now, subject, is_manager_away=number in away)

    for _ in range(100):
        now += 1
        world.run(now, subject, is_manager_away=False)

    assert world.used <= hard + proxies * largest + proxies


@pytest.mark.parametrize("lasts", [0, 5, 200])
def test_all_of_it_is_used_in_the_end(lasts: int) -> None:
    world = World(500, 1)
    subject = budget(500)
    now = 0.0
    for _ in range(2000):
        outcome = world.ledgers[0][0].reserve([subject], 40, now)
        if isinstance(outcome, LedgerReservation):
            world.running.append((now + lasts, 0, 30, outcome))

        now += 1
        world.run(now, subject, is_manager_away=False)

    assert 500 <= world.used <= 540
