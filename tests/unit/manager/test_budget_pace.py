"""The budget controller's pace: when it adds budgets up again."""

from __future__ import annotations

import pytest

from moorage.manager.loops.budget_controller import next_in_s


@pytest.mark.parametrize(
    ("left_s", "took_s", "expected_s"),
    [
        ([], 0.01, 10.0),
        ([None, None], 0.01, 10.0),
        ([None, 4.0, 7.0], 0.01, 4.0),
        ([0.0], 0.01, 1.0),
        ([30.0], 0.01, 10.0),
        ([1.0], 0.5, 5.0),  # at most a tenth of the time
        ([1.0], 60.0, 10.0),  # at least as often as without it
    ],
)
def test_next_in_s(left_s: list[float | None], took_s: float, expected_s: float) -> None:
    assert next_in_s(left_s, took_s) == expected_s
