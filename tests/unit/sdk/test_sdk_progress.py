"""``moorage.progress``: what it writes and how often, and errors that never end the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import moorage
from moorage.agent.kernel.progress import parse_lines
from moorage.common.model.ids import KernelId
from moorage.common.model.resource_usage import KernelProgress

K = KernelId("k")


def test_progress_is_what_the_agent_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress"
    monkeypatch.setenv("MOORAGE_PROGRESS", str(path))
    for step in range(1, 10_001):
        moorage.progress(step=step, of=10_000, message="epoch")
    assert parse_lines(K, path.read_bytes()) == KernelProgress(
        K, 1.0, step=10_000, of=10_000, message="epoch"
    )
    assert len(path.read_bytes().splitlines()) < 100, "a loop does not fill the disk"


@pytest.mark.parametrize("path", ["", "/nowhere/progress", "/"])
def test_a_program_goes_on_without_a_place_for_its_progress(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORAGE_PROGRESS", path)
    moorage.progress(1)
    moorage.progress(1, message="\ud800")


def test_no_other_package_is_imported() -> None:
    code = "import sys, moorage; moorage.progress(1); print(*{n.partition('.')[0] for n in sys.modules})"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"MOORAGE_PROGRESS": "/dev/null"},
    )
    assert not set(ran.stdout.split()) & {"pydantic", "aiohttp", "structlog", "typer", "grpc"}
