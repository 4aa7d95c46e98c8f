"""``moorage scheduler simulate``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from invoke import Run

from moorage.server.commands import scheduler  # noqa: F401 - registers its commands

TRACE = """
{"at_s": 0, "gpus": 1, "run_s": 100, "limit_s": 100}
{"at_s": 1, "gpus": 2, "run_s": 50, "limit_s": 50}
{"at_s": 2, "gpus": 1, "run_s": 40, "limit_s": 40}
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "jobs.jsonl"
    path.write_text(TRACE)
    return str(path)


def test_jobs_of_a_file_under_two_policies(moorage: Run, trace: str) -> None:
    arguments = (
        "scheduler",
        "simulate",
        "--trace",
        trace,
        "--policy",
        "strict,backfill",
        "--agents",
        "1",
    )
    result = moorage(*arguments, "--gpus", "2", "-o", "json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["jobs"] == 3

    # The second job waits 99 s under both strategies. Backfill starts the third job before it;
    # under strict, the third waits 148 s.
    assert {name: f["mean_wait"] for name, f in answer["policies"].items()} == {
        "strict": pytest.approx(247 / 3),
        "backfill": pytest.approx(33),
    }


def test_table_has_a_line_for_each_policy(moorage: Run) -> None:
    result = moorage(
        "scheduler", "simulate", "--trace", "bursty", "--jobs", "40", "--policy", "skip, drf"
    )
    assert result.exit_code == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["POLICY", "skip", "drf"]


def test_unstarted_jobs_are_noted(moorage: Run, trace: str) -> None:
    result = moorage("scheduler", "simulate", "--trace", trace, "--agents", "1", "--gpus", "1")
    assert result.exit_code == 0
    assert "1 jobs never start: they need more than 1 agents of 1 GPUs have" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("--policy", "fair"),
            ("unknown --policy 'fair'", "strict, skip, greedy, backfill, lifo, drf"),
        ),
        (("--policy", ","), ("unknown --policy",)),
        (("--trace", "odd"), ("unknown trace 'odd'", "heavy-user")),
        (("--trace", "no/such.jsonl"), ("no/such.jsonl", "cannot read")),
        (("--estimates", "rough"), ("rough", "exact, padded or none")),
        (("--jobs", "3", "--plot", "waits.txt"), ("waits.txt", ".png or .svg")),
    ],
)
def test_invalid_options_are_refused_with_alternatives(
    moorage: Run, arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    result = moorage("scheduler", "simulate", *arguments)
    assert result.exit_code != 0
    assert all(part in result.stderr for part in expected), result.stderr


@pytest.mark.parametrize(
    ("name", "signature"), [("waits.png", b"\x89PNG"), ("waits.svg", b"<?xml")]
)
def test_same_simulation_gives_the_same_plot(
    moorage: Run, tmp_path: Path, name: str, signature: bytes
) -> None:
    pytest.importorskip("matplotlib", reason="needs moorage[plot]")
    plots = []
    for folder in ("one", "two"):
        path = tmp_path / folder / name
        path.parent.mkdir()
        result = moorage(
            "scheduler", "simulate", "--jobs", "30", "--agents", "4", "--plot", str(path)
        )
        assert result.exit_code == 0, result.stderr
        plots.append(path.read_bytes())

    assert plots[0] == plots[1]
    assert plots[0].startswith(signature)


def test_plot_without_matplotlib_names_the_next_step(
    moorage: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    result = moorage("scheduler", "simulate", "--jobs", "3", "--plot", str(tmp_path / "waits.png"))
    assert result.exit_code != 0
    assert "pip install 'moorage[plot]'" in result.stderr
