"""systemd units: systemd accepts them, and they call existing commands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from moorage import __main__
from moorage.cli import app

assert __main__.main  # it adds the commands of the daemons
UNITS = sorted((Path(__file__).parents[3] / "deploy" / "systemd").glob("*.service"))


def values(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


# etcd is a Debian program.
OURS = [unit for unit in UNITS if unit.stem != "moorage-etcd"]


@pytest.mark.parametrize("unit", OURS, ids=lambda unit: unit.stem)
def test_units_call_existing_commands(unit: Path) -> None:
    [exec_start] = values(unit, "ExecStart")
    program, *arguments = exec_start.split()
    assert Path(program).name == "moorage"
    result = CliRunner().invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0, result.output
    [home] = [value for value in values(unit, "Environment") if value.startswith("MOORAGE_HOME=")]
    [state_directory] = values(unit, "StateDirectory")
    assert home == f"MOORAGE_HOME=/var/lib/{state_directory}"


def test_stopping_the_agent_leaves_kernels_running() -> None:
    [agent] = [unit for unit in UNITS if unit.stem == "moorage-agent"]
    assert values(agent, "KillMode") == ["process"]
    # Kernels inherit these. For example, ProtectClock denies access to all devices except the
    # clock.
    inherited = r"^(Protect|Private|Device|Restrict|NoNew|Capability|OOMScore|Memory|CPU)\w*="
    assert re.findall(inherited, agent.read_text(), re.MULTILINE) == []


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_units(unit: Path, tmp_path: Path) -> None:
    # Replace the program and the user with ones that exist on this machine.
    text = re.sub(
        r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit.read_text(), flags=re.MULTILINE
    )
    text = re.sub(r"^(User|Group)=.*", r"\1=root", text, flags=re.MULTILINE)
    candidate = tmp_path / unit.name
    candidate.write_text(text)
    result = subprocess.run(
        ["systemd-analyze", "verify", candidate], capture_output=True, text=True, check=False
    )
    complaints = [line for line in result.stderr.splitlines() if unit.name in line]
    assert (result.returncode, complaints) == (0, [])
