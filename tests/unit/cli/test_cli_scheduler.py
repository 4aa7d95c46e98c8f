"""``moorage scheduler``, which asks no manager."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from invoke import Run

from moorage.server.commands import scheduler_simulate  # noqa: F401 - it registers its commands

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


def test_a_recorded_trace_under_two_policies(moorage: Run, trace: str) -> None:
    words = ("scheduler", "simulate", "--trace", trace, "--policy", "strict,backfill", "--agents", "1")
    result = moorage(*words, "--gpus", "2", "-o", "json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["jobs"] == 3
    # The head waits 99 s in both; the short one goes before it with backfill, and waits 148 s without.
    assert {name: f["mean_wait"] for name, f in answer["policies"].items()} == {
        "strict": pytest.approx(247 / 3),
        "backfill": pytest.approx(33),
    }


def test_the_table_has_a_line_for_each_policy(moorage: Run) -> None:
    result = moorage("scheduler", "simulate", "--trace", "bursty", "--jobs", "40", "--policy", "skip, drf")
    assert result.exit_code == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["POLICY", "skip", "drf"]


def test_what_never_starts_is_said(moorage: Run, trace: str) -> None:
    result = moorage("scheduler", "simulate", "--trace", trace, "--agents", "1", "--gpus", "1")
    assert result.exit_code == 0
    assert "1 jobs ask for more than 1 agents of 1 GPUs have" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "fair"), ("'fair' is not known", "strict, skip, greedy, backfill, lifo, drf")),
        (("--policy", ","), ("is not known",)),
        (("--trace", "odd"), ("'odd' is not known", "heavy-user")),
        (("--trace", "no/such.jsonl"), ("no/such.jsonl", "cannot be read")),
        (("--estimates", "rough"), ("rough", "exact, padded or none")),
        (("--jobs", "3", "--plot", "waits.txt"), ("waits.txt", ".png or .svg")),
    ],
)
def test_wrong_options_say_what_is_right(moorage: Run, words: tuple[str, ...], said: tuple[str, ...]) -> None:
    result = moorage("scheduler", "simulate", *words)
    assert result.exit_code != 0
    assert all(part in result.stderr for part in said), result.stderr


@pytest.mark.parametrize(("name", "begin"), [("waits.png", b"\x89PNG"), ("waits.svg", b"<?xml")])
def test_the_plot_is_the_same_each_time(moorage: Run, tmp_path: Path, name: str, begin: bytes) -> None:
    pytest.importorskip("matplotlib", reason="needs moorage[plot]")
    drawn = []
    for folder in ("one", "two"):
        path = tmp_path / folder / name
        path.parent.mkdir()
        result = moorage("scheduler", "simulate", "--jobs", "30", "--agents", "4", "--plot", str(path))
        assert result.exit_code == 0, result.stderr
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1]
    assert drawn[0].startswith(begin)


def test_without_the_library_the_next_step_is_said(
    moorage: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as Python does where it is not installed
    result = moorage("scheduler", "simulate", "--jobs", "3", "--plot", str(tmp_path / "waits.png"))
    assert result.exit_code != 0
    assert "pip install 'moorage[plot]'" in result.stderr
