"""The limit ledger: no window gets more than its limit, and refunds are exact."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.link.messages import KeyGrant, ModelRoute, RequestLimits
from moorage.common.link.proxy_messages import LimitNeed, LimitShare
from moorage.proxy.core.limit_subject import LimitSubject
from moorage.proxy.core.limits.ledger import Ledger, LedgerReservation, cells_needed
from moorage.proxy.core.limits.request_needs import (
    LimitExceeded,
    Room,
    Rooms,
    estimate_tokens,
    headers_of,
    rate_limited,
    subjects_of,
)


def ledger(sets: int = 4, worker: int = 0, cells: list[int] | None = None) -> Ledger:
    return Ledger([0] * cells_needed(sets) if cells is None else cells, worker)


def subject(name: str = "key/a", **limits: int) -> LimitSubject:
    return LimitSubject(name, RequestLimits(**limits))


def granted(outcome: LedgerReservation | LimitExceeded) -> LedgerReservation:
    assert isinstance(outcome, LedgerReservation), outcome
    return outcome


def refused(outcome: LedgerReservation | LimitExceeded) -> LimitExceeded:
    assert isinstance(outcome, LimitExceeded), outcome
    return outcome


def rest(room: Room | None) -> tuple[int, int, int]:
    assert room is not None
    return room.limit, room.remaining, room.reset_s


def test_requests_a_minute():
    book = ledger()
    key = subject(requests_per_minute=3)
    for now, remaining in ((0.0, 2), (10.9, 1), (11.0, 0)):
        left = granted(book.reserve([key], 0, now)).rooms
        assert (rest(left.requests), left.tokens) == ((3, remaining, 60), None)

    refusal = refused(book.reserve([key], 0, 30.5))
    assert (refusal.subject, refusal.kind, refusal.limit, refusal.retry_s) == (
        "key/a",
        "requests",
        3,
        31,
    )
    assert rest(refusal.rooms.requests) == (3, 0, 42)
    assert isinstance(book.reserve([key], 0, 60.9), LimitExceeded), "61 cells: never early"
    granted(book.reserve([key], 0, 61.0))


def test_tokens_are_settled_by_what_was_used():
    book = ledger()
    key = subject(tokens_per_minute=100)
    first = granted(book.reserve([key], 80, 1.0))
    assert refused(book.reserve([key], 30, 2.0)).kind == "tokens"
    book.settle(first, 10, 3.0)
    granted(book.reserve([key], 90, 3.0))
    assert refused(book.reserve([key], 1, 3.0)).retry_s == 59
    assert refused(book.reserve([key], 101, 3.0)).retry_s is None, "never: it is above the limit"


def test_refund_makes_no_room_once_its_reservation_has_left_the_minute():
    book = ledger()
    key = subject(tokens_per_minute=100)
    first = granted(book.reserve([key], 90, 0.0))
    book.settle(first, 10, 30.0)
    granted(book.reserve([key], 90, 59.0))
    assert refused(book.reserve([key], 11, 61.0)).kind == "tokens"


def test_more_tokens_than_reserved_count_from_the_end():
    book = ledger()
    key = subject(tokens_per_minute=100)
    book.settle(granted(book.reserve([key], 10, 0.0)), 100, 30.0)
    assert refused(book.reserve([key], 11, 61.0)).retry_s == 30
    granted(book.reserve([key], 10, 61.0))


def test_concurrent_requests():
    book = ledger()
    key = subject(concurrent_requests=2)
    one, _ = (granted(book.reserve([key], 0, 0.0)) for _ in range(2))
    assert refused(book.reserve([key], 0, 500.0)).kind == "concurrent requests"
    book.settle(one, 0, 500.0)
    granted(book.reserve([key], 0, 500.0))


def test_every_subject_or_none():
    book = ledger()
    key = subject(requests_per_minute=10)
    project = subject("project/p", requests_per_minute=1)
    granted(book.reserve([key, project], 0, 0.0))
    assert refused(book.reserve([key, project], 0, 0.0)).subject == "project/p"
    left = granted(book.reserve([key], 0, 0.0)).rooms.requests
    assert rest(left) == (10, 8, 60), "not charged for it"


def test_workers_share_what_they_have_used():
    cells = [0] * cells_needed(4)
    one = ledger(worker=0, cells=cells)
    other = ledger(worker=1, cells=cells)
    key = subject(requests_per_minute=5, concurrent_requests=2)
    granted(one.reserve([key], 0, 0.0))
    granted(other.reserve([key], 0, 0.0))
    assert refused(one.reserve([key], 0, 1.0)).kind == "concurrent requests"
    one.forget_worker(1)
    granted(one.reserve([key], 0, 1.0))


def test_share_of_a_limit():
    book = ledger()
    key = subject(requests_per_minute=10)

    def grants(now: float) -> int:
        return sum(isinstance(book.reserve([key], 0, now), LedgerReservation) for _ in range(10))

    book.share_among(3)
    assert grants(1.0) == 4, "an equal part until a manager tells more"
    (need,) = book.needs([key], 1.0)
    assert need == LimitNeed(
        "key/a", limit_requests=10, used_requests=4, wanted_requests=10, held_requests=4
    )
    book.adopt(LimitShare("key/a", requests=6), 9.0)
    assert grants(1.0) == 2
    book.adopt(LimitShare("key/a", requests=0), 9.0)
    assert refused(book.reserve([key], 0, 1.0)).retry_s == 1
    assert grants(63.0) == 4, "an equal part again when no manager has told a share for some time"


def test_subject_that_was_used_longest_ago_makes_room():
    book = ledger(sets=1)
    running = granted(book.reserve([subject("key/0", concurrent_requests=1)], 0, 0.0))
    for i in range(1, 9):
        granted(book.reserve([subject(f"key/{i}", requests_per_minute=1)], 0, float(i)))
    assert isinstance(
        book.reserve([subject("key/2", requests_per_minute=1)], 0, 9.0), LimitExceeded
    )
    granted(book.reserve([subject("key/1", requests_per_minute=1)], 0, 9.0))
    assert isinstance(
        book.reserve([subject("key/0", concurrent_requests=1)], 0, 9.0), LimitExceeded
    )
    book.settle(running, 0, 10.0)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 40_000),  # milliseconds since the previous step
        st.integers(0, 60),  # tokens
        st.integers(0, 80),  # tokens used by an earlier request that ends here
        st.sampled_from(("reserve", "settle", "cancel")),
    ),
    max_size=60,
)


@examples(60)
@given(STEPS, st.integers(0, 5), st.integers(0, 100))
def test_no_window_gets_more_than_the_limit(
    steps: Sequence[tuple[int, int, int, str]], requests: int, tokens: int
):
    book = ledger(sets=1)
    key = subject(requests_per_minute=requests, tokens_per_minute=tokens)
    now = 0
    granted_at = []
    running = []
    for pause_ms, asked, used, step in steps:
        now += pause_ms
        if step == "reserve":
            outcome = book.reserve([key], asked, now / 1000)
            if isinstance(outcome, LedgerReservation):
                running.append((outcome, len(granted_at)))
                granted_at.append((now, asked, 1))
        elif running:
            reservation, index = running.pop(0)
            at, reserved, _ = granted_at[index]
            if step == "cancel":
                book.cancel(reservation, now / 1000)
                granted_at[index] = (at, 0, 0)
            else:
                used = min(used, reserved)
                book.settle(reservation, used, now / 1000)
                granted_at[index] = (at, used, 1)

        for end, _, _ in granted_at:
            window = [g for g in granted_at if end - 60_000 <= g[0] <= end]
            assert sum(g[2] for g in window) <= requests
            assert sum(g[1] for g in window) <= tokens


@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 59)),
        min_size=1,
        max_size=8,
    )
)
def test_settling_is_as_if_that_had_been_reserved(uses: Sequence[tuple[int, int, int]]):
    """``uses``: the tokens reserved, the tokens used, and the seconds until the end."""
    key = subject(tokens_per_minute=1000, concurrent_requests=100)
    book = ledger(sets=1)
    exact = ledger(sets=1)
    running = [granted(book.reserve([key], reserved, 0.0)) for reserved, _, _ in uses]
    for (reserved, used, after), reservation in sorted(
        zip(uses, running, strict=True), key=lambda ending: ending[0][2]
    ):
        book.settle(reservation, min(used, reserved), float(after))
        exact.settle(
            granted(exact.reserve([key], min(used, reserved), 0.0)), min(used, reserved), 0.0
        )

    for now in (59.0, 60.0, 61.0, 120.0):
        assert book.needs([key], now)[0].used_tokens == exact.needs([key], now)[0].used_tokens
        assert book.needs([key], now)[0].used_concurrent == 0


def test_headers():
    rooms = Rooms(Room(10, 3, 60), Room(1000, 0, 7))
    assert headers_of(rooms) == [
        ("x-ratelimit-limit-requests", "10"),
        ("x-ratelimit-remaining-requests", "3"),
        ("x-ratelimit-reset-requests", "60s"),
        ("x-ratelimit-limit-tokens", "1000"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "7s"),
    ]
    error = rate_limited(
        LimitExceeded("model/m", "tokens", limit=1000, asked=12, retry_s=7, rooms=rooms)
    )
    assert (error.status, error.code, error.headers["Retry-After"]) == (
        429,
        "rate_limit_exceeded",
        "7",
    )
    assert (
        error.message == "Rate limit reached for model 'm': 1000 tokens a minute. Retry after 7 s."
    )
    error = rate_limited(
        LimitExceeded("key/k", "tokens", limit=1000, asked=1200, retry_s=None, rooms=rooms)
    )
    assert "Retry-After" not in error.headers
    assert error.message.endswith("asks for 1200: shorten the prompt, or set a lower max_tokens.")
    assert rate_limited(
        LimitExceeded("key/k", "requests", limit=0, asked=1, retry_s=None, rooms=rooms)
    ).message.endswith("It allows none.")


def test_subjects():
    limits = RequestLimits(1)
    key = KeyGrant("x", project="p", id="k", limits=limits)
    route = ModelRoute("m", 0, limits=limits)
    assert [s.name for s in subjects_of(key, route, limits)] == ["key/k", "project/p", "model/m"]
    assert [s.name for s in subjects_of(None, route, None)] == ["model/m"]
    assert subjects_of(KeyGrant("x", limits=RequestLimits()), ModelRoute("m", 0), None) == ()


def test_estimated_tokens():
    assert estimate_tokens(401, 50) == 151
    assert estimate_tokens(0, None, 2) == 512
