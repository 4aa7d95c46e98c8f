"""The account of fault runs: charges that contradict what programs report about themselves."""

from __future__ import annotations

import pytest

from .account import Charge, charged_wrongly

STARTS = {"k": 100}
ENDS = {"k": 110}


@pytest.mark.parametrize(
    ("charge", "wrong"),
    [
        (Charge("k", 100, 110, "exit-zero"), ""),
        (Charge("k", 102, 115, "exit-nonzero"), ""),  # the time at which it became known
        (Charge("k", 99, 110, "exit-zero"), "charged from 99"),
        (Charge("other", 100, 110, "exit-zero"), "began at None"),
        (Charge("other", 100, 110, "user-requested"), "began at None"),
        (Charge("other", 100, 101, "exit-zero"), "began at None"),
        (Charge("other", 100, 101, "user-requested"), ""),
        (Charge("k", 101, 109, "exit-zero"), "charged until 109"),
        (Charge("k", 101, 104, "agent-lost"), ""),  # up to the last contact
        (Charge("k", 101, 104, ""), ""),
    ],
)
def test_charge(charge: Charge, wrong: str) -> None:
    assert [wrong in found for found in charged_wrongly([charge], STARTS, ENDS)] == [True] * bool(
        wrong
    )
