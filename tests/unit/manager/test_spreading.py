"""Spreading agents over managers: how many agents each manager hands over, to which manager, and
when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.manager.rpc.spreading import (
    FIRST_AT_ONCE,
    MOST_AT_ONCE,
    QUICK_S,
    SETTLE_S,
    STEADY_S,
    WAIT_S,
    Spreading,
    find_moves,
    is_uneven,
    next_at_once,
)

COUNTS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 2000), min_size=1)
SMALL_COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 400), min_size=1)

CASES: dict[str, tuple[dict[str, int], dict[str, dict[str, int]]]] = {
    "nobody is there": ({"a": 0, "b": 0}, {}),
    "one manager": ({"a": 9}, {}),
    "one agent stays": ({"a": 1, "b": 0}, {}),
    "two agents are divided": ({"a": 2, "b": 0}, {"a": {"b": 1}}),
    "three agents on two managers stay as they are": ({"a": 2, "b": 1}, {}),
    "a third manager has come": ({"a": 6, "b": 6, "c": 0}, {"a": {"c": 2}, "b": {"c": 2}}),
    "two have come": ({"a": 90, "b": 0, "c": 0}, {"a": {"b": 30, "c": 30}}),
    "those with the most keep one more": ({"a": 10, "b": 0, "c": 0}, {"a": {"b": 3, "c": 3}}),
    "a difference of a fifth is tolerated": ({"a": 110, "b": 90}, {}),
    "more than a fifth is not": ({"a": 112, "b": 90}, {"a": {"b": 11}}),
}


def all_moves(counts: dict[str, int]) -> dict[str, dict[str, int]]:
    """The agents handed over by each manager that hands over any."""
    return {manager: moves for manager in counts if (moves := find_moves(manager, counts))}


@pytest.mark.parametrize("name", CASES)
def test_who_hands_over(name: str) -> None:
    counts, expected = CASES[name]
    assert all_moves(counts) == expected


@given(COUNTS)
def test_all_moves_together_spread_evenly_and_nobody_moves_twice(counts: dict[str, int]) -> None:
    after = dict(counts)
    for manager, moves in all_moves(counts).items():
        for target, count in moves.items():
            assert count > 0
            after[manager] -= count
            after[target] += count

    if not is_uneven(counts):
        assert after == counts
        return

    assert max(after.values()) - min(after.values()) <= 1
    mean = sum(counts.values()) / len(counts)
    for manager, before in counts.items():
        assert before >= mean - 1 or after[manager] >= before, (
            "one below the mean gives nothing away"
        )
        assert before <= mean + 1 or after[manager] <= before, "one above the mean gets nothing"


def test_nothing_is_handed_to_a_manager_that_is_new() -> None:
    spreading = Spreading()
    counts = {"a": 10, "b": 0}
    assert spreading.decide("a", counts, 0.0) == {}
    assert spreading.decide("a", counts, STEADY_S - 0.1) == {}
    assert spreading.decide("a", counts, STEADY_S) == {"b": 5}


def test_one_that_comes_again_and_again_gets_nothing() -> None:
    spreading = Spreading()
    now = 0.0
    for _ in range(10):
        assert spreading.decide("a", {"a": 10, "b": 0}, now) == {}
        assert spreading.decide("a", {"a": 10, "b": 0}, now + STEADY_S - 0.5) == {}
        assert spreading.decide("a", {"a": 10}, now + STEADY_S) == {}
        now += STEADY_S + 1


def test_the_next_decision_waits_until_the_counts_show_the_last_one() -> None:
    spreading = Spreading()
    counts = {"a": 1000, "b": 0}
    spreading.decide("a", counts, 0.0)
    assert spreading.decide("a", counts, STEADY_S) == {"b": FIRST_AT_ONCE}
    assert spreading.decide("a", counts, STEADY_S + SETTLE_S - 0.1) == {}
    counts = {"a": 900, "b": 100}
    assert spreading.decide("a", counts, STEADY_S + SETTLE_S) == {"b": 2 * FIRST_AT_ONCE}


AT_ONCE = [
    ("they went at once", 100, 0.0, 200),
    ("they went in time", 200, QUICK_S, 400),
    ("no more at one time", MOST_AT_ONCE, 0.0, MOST_AT_ONCE),
    ("they took longer", 400, QUICK_S + 0.5, 200),
    ("they took long, again and again", FIRST_AT_ONCE, WAIT_S, FIRST_AT_ONCE),
]


@pytest.mark.parametrize(("asked", "took_s", "expected"), [case[1:] for case in AT_ONCE])
def test_how_many_are_asked_at_one_time(asked: int, took_s: float, expected: int) -> None:
    assert next_at_once(asked, took_s) == expected


def test_fewer_are_asked_while_those_that_were_asked_are_slow() -> None:
    spreading = Spreading()
    now = STEADY_S
    counts = {"a": 1000, "b": 0}
    spreading.decide("a", counts, 0.0)
    assert spreading.decide("a", counts, now) == {"b": FIRST_AT_ONCE}
    slow_s = QUICK_S + 1
    assert spreading.decide("a", counts, now + slow_s, left=60) == {}
    now += slow_s + SETTLE_S
    assert spreading.decide("a", {"a": 900, "b": 100}, now) == {"b": FIRST_AT_ONCE}, (
        "no more than before"
    )
    now += SETTLE_S
    assert spreading.decide("a", {"a": 800, "b": 200}, now) == {"b": 2 * FIRST_AT_ONCE}
    assert spreading.decide("a", {"a": 800, "b": 200}, now + slow_s, left=60) == {}
    now += slow_s + SETTLE_S
    assert spreading.decide("a", {"a": 700, "b": 300}, now) == {"b": FIRST_AT_ONCE}, "half as many"


def test_few_that_stay_delay_nobody() -> None:
    """An agent that serves a command stays until it ends."""
    spreading = Spreading()
    counts = {"a": 1000, "b": 0}
    spreading.decide("a", counts, 0.0)
    assert spreading.decide("a", counts, STEADY_S) == {"b": FIRST_AT_ONCE}
    counts = {"a": 905, "b": 95}
    assert spreading.decide("a", counts, STEADY_S + SETTLE_S, left=5) == {"b": 2 * FIRST_AT_ONCE}


def test_ten_thousand_agents_are_spread_in_half_a_minute() -> None:
    """Two managers when a third one joins: in each round, the agents that are asked take two
    seconds to move."""
    spreadings = {"a": Spreading(), "b": Spreading()}
    counts = {"a": 5000, "b": 5000, "c": 0}
    now = 0.0
    going = list[tuple[float, str, int]]()
    while is_uneven(counts):
        for manager in [source for at, source, _ in going if at <= now]:
            left = [one for one in going if one[1] != manager]
            going = [one for one in going if one[1] == manager]
            counts[manager] -= going[0][2]
            counts["c"] += going[0][2]
            going = left

        for manager, spreading in spreadings.items():
            waiting = sum(count for _, source, count in going if source == manager)
            for _, count in spreading.decide(manager, counts, now, left=waiting).items():
                going.append((now + 2, manager, count))

        now += 1.0

    assert now < STEADY_S + 30


def test_the_next_decision_waits_for_those_that_were_asked() -> None:
    """They may be busy. If one never moves, others are asked."""
    spreading = Spreading()
    counts = {"a": 4, "b": 0}
    spreading.decide("a", counts, 0.0)
    assert spreading.decide("a", counts, STEADY_S) == {"b": 2}
    late = STEADY_S + WAIT_S
    assert spreading.decide("a", counts, late - 1, left=2) == {}
    assert spreading.decide("a", counts, late + SETTLE_S, left=2) == {"b": 2}


@examples(60)
@given(
    SMALL_COUNTS,
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.lists(st.booleans(), min_size=1),
)
def test_counts_that_are_behind_never_make_agents_go_back_and_forth(
    counts: dict[str, int], lags: list[int], answers: list[bool]
) -> None:
    """Each manager sees the others as they were up to a second ago, and agents take up to two
    seconds to move, or do not move at all."""
    spreadings = {manager: Spreading() for manager in counts}
    history = [dict(counts)]
    moved = 0
    step_s = 0.5
    on_the_way: list[tuple[int, str, str, int]] = []
    least = sum(
        max(0, count - -(-sum(counts.values()) // len(counts))) for count in counts.values()
    )
    steps = round((STEADY_S + SETTLE_S * (2 * 4 * 400 / FIRST_AT_ONCE)) / step_s)
    for step in range(steps):
        now = dict(history[-1])
        for _, source, target, count in [move for move in on_the_way if move[0] <= step]:
            now[source] -= count
            now[target] += count

        on_the_way = [move for move in on_the_way if move[0] > step]
        history.append(now)
        for number, (manager, spreading) in enumerate(spreadings.items()):
            behind = history[max(0, len(history) - 1 - min(2, lags[(step + number) % len(lags)]))]
            seen = behind | {manager: now[manager]}
            for target, count in spreading.decide(manager, seen, step * step_s).items():
                going = count if answers[step % len(answers)] else count // 2
                moved += going
                on_the_way.append(
                    (step + lags[(step * 7 + number) % len(lags)] + 1, manager, target, going)
                )

        if not on_the_way and not is_uneven(now) and step * step_s > STEADY_S:
            break

    assert moved <= least + 2 * len(counts) + sum(counts.values()) // 5
    if all(answers):
        assert not is_uneven(history[-1])
