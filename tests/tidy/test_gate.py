"""The gate checks itself: quarantine is short, and the tests that it runs kill the mutations."""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path

import pytest
from tests.mutations.catalog import MUTATIONS
from tests.mutations.mutation import Mutation
from tools.gate.choice import touched
from tools.gate.steps import Kind, read_steps

ROOT = Path(__file__).parents[2]
STEPS = read_steps(ROOT / "tests" / "steps.toml")
QUARANTINE = tomllib.loads((ROOT / "tests" / "quarantine.toml").read_text()).get("quarantine", [])
MAX_QUARANTINED = 5
QUARANTINE_DAYS = 14
NEVER_QUARANTINED = ("tests/model/", "tests/isolation/", "tests/faults/")


def problems(entries: list[dict[str, object]], today: datetime.date) -> list[str]:
    """What is wrong with a quarantine, one problem per line."""
    found = []
    if len(entries) > MAX_QUARANTINED:
        found.append(f"{len(entries)} cases are in quarantine; at most {MAX_QUARANTINED} may be")

    for entry in entries:
        case = entry.get("case")
        date = entry.get("date")
        reason = entry.get("reason")
        if not (isinstance(case, str) and isinstance(date, datetime.date) and reason):
            found.append(f"{entry}: an entry has a case, a date and a reason")
            continue
        if case.startswith(NEVER_QUARANTINED):
            found.append(f"{case}: no case of {', '.join(NEVER_QUARANTINED)} may be in quarantine")
        if not (ROOT / case.partition("::")[0]).exists():
            found.append(f"{case}: there is no such file")
        if (today - date).days > QUARANTINE_DAYS:
            found.append(f"{case}: in quarantine since {date}, longer than {QUARANTINE_DAYS} days")

    return found


def test_quarantine_is_in_order() -> None:
    assert problems(QUARANTINE, datetime.datetime.now(datetime.UTC).date()) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"date": datetime.date(2026, 11, 12)}, "longer than 14 days"),
        ({"date": datetime.date(2026, 11, 13)}, ""),
        ({"reason": ""}, "a case, a date and a reason"),
        ({"case": "tests/model/test_plan.py::test_x"}, "may be in quarantine"),
        ({"case": "tests/wire/test_of_nothing.py::test_x"}, "no such file"),
    ],
)
def test_rules_of_quarantine(changes: dict[str, object], problem: str) -> None:
    entry: dict[str, object] = {
        "case": "tests/tidy/test_gate.py::x",
        "date": datetime.date(2026, 11, 27),
    }
    found = problems([{**entry, "reason": "unknown", **changes}], datetime.date(2026, 11, 27))
    assert len(found) == bool(problem)
    assert problem in "".join(found)


def test_six_cases_are_too_many() -> None:
    entry = {
        "case": "tests/tidy/test_gate.py::x",
        "date": datetime.date(2026, 11, 27),
        "reason": "unknown",
    }
    assert problems([entry] * 5, datetime.date(2026, 11, 27)) == []
    assert "at most 5" in problems([entry] * 6, datetime.date(2026, 11, 27))[0]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_gate_runs_what_kills_a_mutation(mutation: Mutation) -> None:
    """Always, or because the mutated file belongs to the step. The runner leaves out the slow
    cases."""
    test = mutation.tests[0].partition("::")[0]
    steps = [step for step in STEPS if any(test.startswith(folder) for folder in step.tests)]
    always = [step for step in steps if step.kind in (Kind.CHECK, Kind.TEST)]
    by_path = [step for step in steps if touched(step, [f"src/moorage/{mutation.file}"])]
    assert always or by_path, (
        f"no step that the gate runs for a change of {mutation.file} has {test}"
    )


def test_every_test_file_belongs_to_a_step() -> None:
    """The kit for GPU machines runs those in tests/gpu."""
    folders = {folder for step in STEPS for folder in step.tests}
    files = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    assert len(files) > 500
    left = [path for path in files if not path.startswith((*folders, "tests/gpu/"))]
    assert left == []


def test_what_a_step_ignores_another_one_runs() -> None:
    for step in STEPS:
        for path in step.ignore:
            assert (ROOT / path).exists()
            assert [other.name for other in STEPS if path in other.tests], (
                f"{step.name} ignores {path}"
            )
    ignored = {path for step in STEPS for path in step.ignore}
    assert {path for step in STEPS if step.kind is Kind.TURN for path in step.tests} == ignored
