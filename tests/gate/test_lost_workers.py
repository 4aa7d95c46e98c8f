"""A worker of pytest that dies costs the case that killed it, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.lost_workers import make_scheduler

def pytest_xdist_make_scheduler(config, log):
    return make_scheduler(config, log)
"""
CASES = """
import os, time, pytest

@pytest.mark.parametrize("number", range(4))
def test_case(number):
    time.sleep(0.02)
    if {dies} and number == 2:
        os.abort()
"""


@pytest.mark.parametrize("distribution", ["loadfile", "loadgroup", "load"])
def test_cases_of_a_dead_worker_run_on_another(tmp_path: Path, distribution: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in "abcdefgh":
        (tmp_path / f"test_{name}.py").write_text(CASES.format(dies=name == "c"))

    words = ["-q", "-n", "2", "--dist", distribution, "-p", "no:cacheprovider", "--rootdir", "."]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "/dev/null", *words, "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    output = ended.stdout
    assert ended.returncode == 1, output
    assert re.search(r"crashed while running 'test_c.py::test_case\[2\]'", output)
    assert "1 failed, 31 passed" in output
