"""deploy/systemd, as read by systemd itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.deploy
UNITS = Path(__file__).parents[2] / "deploy" / "systemd"


def verify(folder: Path) -> str:
    """The complaints of systemd about the units in ``folder``."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("Debian's package systemd is not installed (make test-docker installs it)")

    files = sorted(map(str, folder.iterdir()))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with an existing program in place of the installed ones."""
    for file in UNITS.glob("*.*"):
        if file.suffix in (".service", ".timer"):
            text = file.read_text()
            for program in ("/opt/moorage/bin/moorage", "/usr/bin/etcd"):
                text = text.replace(f"={program}", "=/bin/true")
            (tmp_path / file.name).write_text(text)
    return tmp_path


def test_systemd_finds_nothing_wrong(units: Path) -> None:
    assert len(list(units.iterdir())) >= 6
    assert verify(units) == ""


def test_a_mistake_would_be_found(units: Path) -> None:
    agent = units / "moorage-agent.service"
    agent.write_text(agent.read_text().replace("KillMode=process", "KillMode=proces"))
    assert "proces" in verify(units)
