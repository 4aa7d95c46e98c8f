"""Decision how agents are reached: what proxies ask for, and when an agent is moved."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.manager.rpc.reach import BACK_S, LONGEST_BACK_S, Asked, Reach, back_s, next_reach

DIRECT = Reach(dials_out=False)


def asked(proxies: int, of: int = 2, *, all_take: bool = True) -> Asked:
    return Asked(proxies, of, all_take)


@pytest.mark.parametrize(
    ("before", "what", "dials_out"),
    [
        pytest.param(DIRECT, asked(0), False, id="everybody-reaches-it"),
        pytest.param(DIRECT, asked(1), True, id="one-of-two-does-not"),
        pytest.param(DIRECT, asked(2), True, id="nobody-does"),
        pytest.param(DIRECT, asked(1, all_take=False), False, id="one-proxy-would-lose-it"),
        pytest.param(DIRECT, asked(0, of=0), False, id="no-proxy-listens"),
        pytest.param(Reach(True), asked(0), True, id="its-address-does-not-answer"),
        pytest.param(Reach(True, 0.0), asked(1), True, id="its-address-answers-one-of-two"),
        pytest.param(Reach(True, 50.0), asked(2), True, id="it-answers-for-too-short-a-time"),
        pytest.param(Reach(True, 40.0), asked(2), False, id="it-answers-for-long-enough"),
        pytest.param(Reach(True, 40.0, (50.0,)), asked(2), False, id="after-its-first-change"),
        pytest.param(Reach(True, 40.0, (50.0, 60.0)), asked(2), True, id="after-its-second-change"),
        pytest.param(Reach(True, 0.0), asked(0, of=0), True, id="all-proxies-are-away"),
        pytest.param(
            Reach(True, 40.0), asked(2, all_take=False), False, id="and-one-takes-no-connections"
        ),
    ],
)
def test_who_is_moved(before: Reach, what: Asked, dials_out: bool) -> None:
    assert next_reach(before, what, 100.0).dials_out is dials_out


def test_an_address_that_stops_answering_starts_the_wait_again() -> None:
    reach = next_reach(Reach(True), asked(2), 0.0)
    reach = next_reach(reach, asked(1), BACK_S - 1)
    reach = next_reach(reach, asked(2), BACK_S)
    assert next_reach(reach, asked(2), 2 * BACK_S - 1).dials_out
    assert not next_reach(reach, asked(2), 2 * BACK_S).dials_out


@given(st.lists(st.booleans(), min_size=10, max_size=400))
def test_an_unsteady_network_moves_an_agent_ever_more_rarely(unsteady: list[bool]) -> None:
    reach = DIRECT
    moves = list[float]()
    for step, is_wanted in enumerate(unsteady):
        now = 20.0 * step
        after = next_reach(reach, asked(2 if is_wanted else 0), now)
        if after.dials_out and not reach.dials_out:
            moves.append(now)

        reach = after

    for number, (first, second) in enumerate(pairwise(moves), 1):
        assert second - first >= min(back_s(number), LONGEST_BACK_S)
