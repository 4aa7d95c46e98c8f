"""Pauses under load: proportional to the work within bounds, and counted."""

from __future__ import annotations

import pytest

from moorage.common.aio.pauses import AFTER_REPORT, AFTER_TICK, AFTER_WRITE, PAUSED, Pause


@pytest.mark.parametrize(
    ("pause", "took_s", "expected_s"),
    [
        (AFTER_WRITE, 0.001, 0.003),
        (AFTER_WRITE, 1.0, 0.02),
        (AFTER_TICK, 0.005, 0.01),
        (AFTER_TICK, 1.0, 0.04),
        (AFTER_REPORT, 0.0, 0.002),
        (AFTER_REPORT, 0.005, 0.05),
        (AFTER_REPORT, 1.0, 0.1),
    ],
)
def test_pause_is_proportional_and_bounded(pause: Pause, took_s: float, expected_s: float) -> None:
    assert pause.seconds(took_s) == pytest.approx(expected_s)


def test_requested_pause_is_the_least() -> None:
    assert AFTER_REPORT.after(0.001, requested_s=0.4) == 0.4
    assert AFTER_REPORT.after(0.005, requested_s=0.01) == pytest.approx(0.05)


def test_pauses_are_counted() -> None:
    before = PAUSED["tick"]
    AFTER_TICK.after(0.01)
    assert PAUSED["tick"] == pytest.approx(before + 0.02)
