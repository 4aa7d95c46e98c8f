"""The verdict on a run: what makes it red."""

from __future__ import annotations

from tools.gate.verdict import MAX_FLAKY, REMEMBERED_RUNS, Failure, Retried, judge


def result(case: str, passed: bool | None) -> Retried:
    return Retried(Failure("core", case, "first output"), passed, "second output")


def test_nothing_failed() -> None:
    assert judge([], set(), []).red == []


def test_flaky_case_is_reported_and_green() -> None:
    verdict = judge([result("a", True)], set(), [])
    assert verdict.red == []
    assert [entry.failure.case for entry in verdict.flaky] == ["a"]


def test_case_that_fails_twice_is_red() -> None:
    assert judge([result("a", False)], set(), []).red == ["a failed twice"]


def test_case_that_was_not_run_again_is_red() -> None:
    assert judge([result("a", None)], set(), []).red == ["a failed"]


def test_step_without_a_failed_case_is_red() -> None:
    assert judge([Retried(Failure("types", "", "out"), None)], set(), []).red == [
        "step types failed"
    ]


def test_many_flaky_cases_are_red() -> None:
    cases = [result(str(number), True) for number in range(MAX_FLAKY + 1)]
    assert judge(cases[:MAX_FLAKY], set(), []).red == []
    assert judge(cases, set(), []).red == ["4 cases were flaky; at most 3 may be"]


def test_case_that_is_flaky_again_is_red() -> None:
    remembered = [{"a"}, *[set[str]() for _ in range(REMEMBERED_RUNS - 1)]]
    [line] = judge([result("a", True)], set(), remembered).red
    assert line.startswith("a was flaky before")
    assert judge([result("a", True)], set(), [*remembered, set()]).red == []
    assert judge([result("b", True)], set(), remembered).red == []


def test_quarantined_case_does_not_judge() -> None:
    verdict = judge([result("a", False), result("b", True)], {"a", "b"}, [{"b"}])
    assert verdict.red == []
    assert [entry.failure.case for entry in verdict.quarantined] == ["a", "b"]
    assert verdict.flaky == verdict.failed == []


def test_quarantine_holds_no_step() -> None:
    assert judge([Retried(Failure("core", "", "out"), False)], {""}, []).red == [
        "step core failed twice"
    ]
