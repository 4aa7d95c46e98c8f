"""The gate as a developer runs it: real processes, with the test's own tables of steps."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tools.gate.__main__ import main

TOOLS = Path(__file__).parents[2] / "tools"
CHECK = 'kind = "check"\nabout = "x"\nweight = 1\nusual_s = { gate = 1 }\n'
PASSES = "def test_passes(): pass\n"
FAILS_ONCE = """
import pathlib

def test_fails_once():
    marker = pathlib.Path("marker")
    seen = marker.exists()
    marker.touch()
    assert seen, "the first time"
"""
FAILS_ALWAYS = "def test_fails_always(): assert False, 'every time'\n"


class Checkout:
    """A repository with the gate, a table of steps, and cases. ``output`` is the output of the last
    run."""

    def __init__(self, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.output = ""
        self._capfd = capfd
        shutil.copytree(TOOLS, root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "tests").mkdir()
        (root / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
        subprocess.run(["git", "init", "-q", str(root)], check=True)

    def cases(self, name: str, text: str) -> None:
        (self.root / "tests" / f"test_{name}.py").write_text(text)

    def run(self, steps: str, *words: str) -> int:
        (self.root / "tests" / "steps.toml").write_text(steps)
        code = main(self.root, ["--tier", "check", *words])
        self.output = self._capfd.readouterr().out
        return code

    def last_lines(self) -> list[str]:
        """The text after the table and the outputs: the list of failures and the result."""
        return self.output.rpartition("CPU s\n")[2].splitlines()


@pytest.fixture
def checkout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Checkout:
    return Checkout(tmp_path, capfd)


def test_three_faults_in_three_steps_are_all_named(checkout: Checkout) -> None:
    checkout.cases("broken", "def test_broken(): assert False\n")
    steps = f'[style]\ncommand = "echo bad style; exit 1"\nretry = false\n{CHECK}'
    steps += f'[types]\ncommand = "echo bad types; exit 2"\nretry = false\n{CHECK}'
    steps += f'[unit]\ntests = ["tests"]\n{CHECK}'
    steps += f'[good]\ncommand = "true"\n{CHECK}'
    assert checkout.run(steps) == 1
    assert checkout.last_lines()[:3] == [
        "FAILED step style",
        "FAILED step types",
        "FAILED tests/test_broken.py::test_broken",
    ]
    assert "bad style" in checkout.output
    assert "good   passed" in checkout.output


def test_case_that_fails_once_is_flaky_and_green(checkout: Checkout) -> None:
    checkout.cases("luck", FAILS_ONCE)
    checkout.cases("good", PASSES)
    assert checkout.run(f'[unit]\ntests = ["tests"]\n{CHECK}') == 0
    assert checkout.last_lines() == ["FLAKY  tests/test_luck.py::test_fails_once", "GREEN"]
    assert "the first time" in checkout.output
    assert "1 passed" in checkout.output
    [line] = (checkout.root / "build" / "flaky.jsonl").read_text().splitlines()
    [flaky] = json.loads(line)["flaky"]
    assert flaky["case"] == "tests/test_luck.py::test_fails_once"
    assert "the first time" in flaky["failed"]
    assert "1 passed" in flaky["passed"]


def test_case_that_is_flaky_in_two_runs_is_red(checkout: Checkout) -> None:
    checkout.cases("luck", FAILS_ONCE)
    steps = f'[unit]\ntests = ["tests"]\n{CHECK}'
    assert checkout.run(steps) == 0
    (checkout.root / "marker").unlink()
    assert checkout.run(steps) == 1
    assert "was flaky before in the last 20 recorded runs" in checkout.last_lines()[-1]


def test_case_that_fails_always_is_red(checkout: Checkout) -> None:
    checkout.cases("luck", FAILS_ONCE)
    checkout.cases("bad", FAILS_ALWAYS)
    assert checkout.run(f'[unit]\ntests = ["tests"]\n{CHECK}') == 1
    assert checkout.last_lines() == [
        "FLAKY  tests/test_luck.py::test_fails_once",
        "FAILED tests/test_bad.py::test_fails_always",
        "RED: tests/test_bad.py::test_fails_always failed twice",
    ]


def test_quarantined_case_runs_and_does_not_judge(checkout: Checkout) -> None:
    checkout.cases("bad", FAILS_ALWAYS)
    (checkout.root / "tests" / "quarantine.toml").write_text(
        '[[quarantine]]\ncase = "tests/test_bad.py::test_fails_always"\ndate = 2026-11-27\nreason = "x"\n'
    )
    assert checkout.run(f'[unit]\ntests = ["tests"]\n{CHECK}') == 0
    assert (
        "IN QUARANTINE (failed, does not judge): tests/test_bad.py::test_fails_always"
        in checkout.output
    )


def test_collection_error_is_named(checkout: Checkout) -> None:
    checkout.cases("broken", "import nothing_of_this_name\n")
    assert checkout.run(f'[unit]\ntests = ["tests"]\n{CHECK}') == 1
    assert checkout.last_lines()[0] == "FAILED tests/test_broken.py"
    assert "nothing_of_this_name" in checkout.output


def test_step_without_cases_is_red(checkout: Checkout) -> None:
    assert checkout.run(f'[unit]\ntests = ["tests"]\n{CHECK}') == 1
    assert checkout.last_lines()[0] == "FAILED step unit"


def test_step_that_cannot_be_prepared_is_red_only_where_all_are_required(
    checkout: Checkout,
) -> None:
    steps = f'[docker]\nprepare = "echo no engine here; exit 1"\ncommand = "true"\n{CHECK}'
    assert checkout.run(steps) == 0
    assert "not run" in checkout.output
    assert "no engine here" in checkout.output
    assert checkout.run(steps, "--require-all") == 1


def test_step_is_stopped_at_its_limit_and_names_the_running_case(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.gate.steps.LEAST_LIMIT_S", 3.0)
    checkout.cases("hang", "import time\ndef test_hangs(): time.sleep(600)\n")
    assert checkout.run(f'[unit]\ntests = ["tests"]\n{CHECK}') == 1
    assert "STOPPED" in checkout.output
    stopped = "stopped at its limit of 3 s; cases that ran then: tests/test_hang.py::test_hangs"
    assert stopped in checkout.output


def test_unknown_step_is_refused(checkout: Checkout, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        checkout.run(f'[unit]\ntests = ["tests"]\n{CHECK}', "dokcer")
    assert exited.value.code == 2
    assert "dokcer: there is no such step; there are unit" in capfd.readouterr().err
