"""The systemd units: what systemd itself thinks of them, and that they call what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moorage.__main__ import app

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))


def said(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_calls_a_command_that_there_is(unit: Path) -> None:
    [start] = said(unit, "ExecStart")
    program, *words = start.split()
    assert Path(program).name == "moorage"
    shown = CliRunner().invoke(app, [*words, "--help"])
    assert shown.exit_code == 0, shown.output
    [home] = [e for e in said(unit, "Environment") if e.startswith("MOORAGE_HOME=")]
    [state] = said(unit, "StateDirectory")
    assert home == f"MOORAGE_HOME=/var/lib/{state}"


def test_stopping_the_agent_leaves_its_kernels() -> None:
    [agent] = [unit for unit in UNITS if unit.stem == "moorage-agent"]
    assert said(agent, "KillMode") == ["process"]
    # These would be inherited by kernels: ProtectClock alone closes all devices but the clock's.
    taken = r"^(Protect|Private|Device|Restrict|NoNew|Capability|OOMScore|Memory|CPU)\w*="
    assert re.findall(taken, agent.read_text(), re.MULTILINE) == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    # Programs and users of this machine in the place of those of an installation: all else as it is.
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit.read_text(), flags=re.MULTILINE)
    text = re.sub(r"^(User|Group)=.*", r"\1=root", text, flags=re.MULTILINE)
    tried = tmp_path / unit.name
    tried.write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", tried], capture_output=True, text=True, check=False
    )
    complaints = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert (checked.returncode, complaints) == (0, [])
