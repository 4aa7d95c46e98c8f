"""Differences that count between two runs of a suite."""

from __future__ import annotations

import pytest

from tests.suites.running import Allowed, Outcome, suspects, unused

pytestmark = pytest.mark.suites
ROW = Allowed("unit/test_a.py::test_one[*", reason="why")


@pytest.mark.parametrize(
    ("case", "directly", "through", "found"),
    [
        ("unit/test_a.py::test_two", "passed", "failed", True),
        ("unit/test_a.py::test_two", "passed", "skipped", True),
        ("unit/test_a.py::test_two", "passed", "passed", False),
        ("unit/test_a.py::test_two", "failed", "failed", False),
        ("unit/test_a.py::test_two", "failed", "passed", False),
        ("unit/test_a.py::test_one[x]", "passed", "failed", False),
        ("unit/test_a.py::test_one", "passed", "failed", True),
        ("unit/test_a.py::test_one[x]", "passed", "passed", False),
    ],
)
def test_difference(case: str, directly: str, through: str, found: bool) -> None:
    runs = {case: Outcome(directly, "")}, {case: Outcome(through, "")}
    assert suspects(*runs, [ROW]) == ([case] if found else [])
    is_used = (directly, through) == ("passed", "failed") and ROW.allows(case)
    assert unused(*runs, [ROW]) == ([] if is_used else [ROW])


def test_case_that_is_missing_through_the_proxy() -> None:
    assert suspects({"a": Outcome("passed", "")}, {}, []) == ["a"]
