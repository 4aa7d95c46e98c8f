"""An installed wheel without an extra is a client; commands that need more name the extra that
provides it."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

import moorage

from .environments import UV, Environment, find_python

MB = 1_000_000


@pytest.mark.install
@pytest.mark.smoke
def test_a_wheel_without_extras_is_a_client(client_only: Environment, tmp_path: Path) -> None:
    home = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_URL": "http://127.0.0.1:9"}
    home["MOORAGE_INSECURE_LOOPBACK"] = "1"
    for arguments in (["--help"], ["run", "--help"], ["up", "--help"], ["agent", "--help"]):
        assert client_only.run("moorage", *arguments, env=home).returncode == 0, arguments

    assert client_only.run("moorage", "version").stdout.strip() == moorage.__version__
    found = client_only.run(
        "python", "-c", "import moorage.sdk; print(moorage.sdk.__file__)"
    ).stdout
    assert found.startswith(str(client_only.folder))
    unanswered = client_only.run("moorage", "ps", env=home)
    assert unanswered.stderr.startswith("moorage: no manager answers at http://127.0.0.1:9"), (
        unanswered
    )
    assert client_only.packages().isdisjoint(
        {"grpcio", "asyncpg", "sqlalchemy", "numpy", "cryptography"}
    )
    assert client_only.size() < 64 * MB


NEEDS = {
    "up": "all", "demo --exit": "all", "manager": "manager", "agent": "agent", "proxy": "proxy",
    "db check": "manager", "mcp": "mcp", "ssh dev": "ssh",
}  # fmt: skip
IN_SHORT = ("up", "db check", "mcp")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        pytest.param(*pair, marks=() if pair[0] in IN_SHORT else pytest.mark.install)
        for pair in NEEDS.items()
    ],
)
def test_a_component_that_is_not_installed_names_its_extra(
    client_only: Environment, tmp_path: Path, command: str, extra: str
) -> None:
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_URL": "http://127.0.0.1:9"}
    env["MOORAGE_INSECURE_LOOPBACK"] = "1"
    refused = client_only.run("moorage", *command.split(), env=env)
    assert refused.returncode != 0
    # The OpenSSH program adds its own line.
    assert refused.stderr.startswith("moorage: "), refused.stderr
    assert f"pip install 'moorage[{extra}]'" in refused.stderr.splitlines()[0]


@pytest.mark.install
def test_doctor_and_unknown_commands_need_no_extra(
    client_only: Environment, tmp_path: Path
) -> None:
    env = {"MOORAGE_HOME": str(tmp_path)}
    assert "pip install 'moorage[manager]'" in client_only.run("moorage", "doctor", env=env).stdout
    unknown = client_only.run("moorage", "nosuch", env=env)
    assert (unknown.returncode, "No such command" in unknown.stderr) == (2, True), unknown.stderr


def test_all_is_what_the_demo_needs() -> None:
    """Plots and servers for coding agents are separate extras; README lists what ``all``
    includes."""
    requirements = importlib.metadata.metadata("moorage").get_all("Requires-Dist") or []
    everything = next(line for line in requirements if re.search(r"extra == ['\"]all['\"]", line))
    assert {"plot", "mcp", "testing", "celery"}.isdisjoint(re.findall(r"\w+", everything))


@pytest.mark.skipif(
    not UV, reason="NOT TESTED: the demo from the wheel: pip takes a minute; install uv"
)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_the_demo_runs_from_the_wheel(wheel: Path, home: Path, version: str) -> None:
    """``test_trixie`` covers Python 3.13, and ``make test-install`` every version on this
    machine."""
    python = find_python(version)
    if not python:
        pytest.skip(f"NOT TESTED: Python {version} is not on this machine")

    installation = Environment.make(home / "env", python)
    installation.install(f"{wheel}[all]")
    assert "matplotlib" not in installation.packages()
    assert installation.size() < 600 * MB
    names = ("MANAGER__LISTEN", "MANAGER__LINK_LISTEN", "PROXY__LISTEN", "PROXY__INTERNAL_LISTEN")
    env = {f"MOORAGE_{name}": "127.0.0.1:0" for name in names} | {"MOORAGE_HOME": str(home)}
    done = installation.run("moorage", "demo", "--exit", env=env)
    assert done.returncode == 0, done.stderr
    assert "the model answered in" in done.stdout
    assert "nothing is left running" in done.stdout
