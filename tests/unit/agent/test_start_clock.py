"""The clock of the start timeout: for any sequence of observations and restarts, it runs only while
the kernel is known to be starting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.kernel.start_clock import StartClock
from moorage.common.model.status import ObservedState as S

LIMIT_S = 60.0
# The observation after this many seconds; None means that the agent is restarted.
STEPS = st.lists(
    st.tuples(
        st.floats(0, 1000),
        st.sampled_from([S.QUEUED, S.CREATING, S.RUNNING, S.UNKNOWN, S.CREATING, None]),
    ),
    max_size=12,
)


def test_a_queue_that_is_observed_at_its_begin_only_does_not_count() -> None:
    clock = StartClock(100)
    clock.note(S.QUEUED, 110)
    clock.note(S.CREATING, 5_010)
    assert clock.remaining_s(LIMIT_S, 5_020) == 50


def test_what_was_counted_before_a_silence_counts_after_it() -> None:
    clock = StartClock(0)
    clock.note(S.CREATING, 10)
    clock.note(S.UNKNOWN, 20)
    assert clock.remaining_s(LIMIT_S, 500) == 40
    clock.note(S.CREATING, 500)
    assert clock.remaining_s(LIMIT_S, 510) == 30


def test_a_restarted_agent_counts_from_its_first_observation() -> None:
    clock = StartClock()
    assert clock.remaining_s(LIMIT_S, 1_000_000) == LIMIT_S
    clock.note(S.CREATING, 1_000_000)
    assert clock.remaining_s(LIMIT_S, 1_000_010) == 50


@given(steps=STEPS)
def test_it_counts_what_was_said_since_the_last_queue(steps: list[tuple[float, S | None]]) -> None:
    now = 0.0
    starts = False
    clock = StartClock()
    counted_s = 0.0  # the truth, by intervals: each belongs to the observation at its start
    for after_s, seen in steps:
        now += after_s
        counted_s += after_s if starts else 0.0
        if seen is None:
            clock = StartClock()
            starts = False
            counted_s = 0.0
            continue

        clock.note(seen, now)
        starts = seen in (S.CREATING, S.RUNNING)
        counted_s = 0.0 if seen is S.QUEUED else counted_s
        assert abs(LIMIT_S - clock.remaining_s(LIMIT_S, now) - counted_s) < 1e-6

    later = clock.remaining_s(LIMIT_S, now) - clock.remaining_s(LIMIT_S, now + 7)
    assert abs(later - (7 if starts else 0)) < 1e-6
