"""``deploy/join.sh`` on a separate machine, with a real manager on another.

The environment is not made with pip: a stand-in for Python puts the tree under test there, and
prints what it was asked to install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.machines import MOORAGE, Machines

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "join.sh"
NEEDED = ("nsenter", "ip", "systemd-sysusers", "curl")
PIP = """#!/bin/sh
test "$(cat)" = "" || {{ echo "pip got the token" >&2; exit 1; }}
echo "$@" >> {log}
"""
# `python -m venv FOLDER`, and the query for its version.
PYTHON = """#!/bin/sh
test "$1" = -m || exec {python} "$@"
mkdir -p $3/bin
printf %s '{moorage}' > $3/bin/moorage
printf %s '{pip}' > $3/bin/pip
ln -s {python} $3/bin/python
chmod 755 $3/bin/moorage $3/bin/pip
"""
MANAGER = """install -d -m 700 /etc/moorage /var/lib/moorage
systemd-sysusers $PWD/deploy/systemd/moorage.sysusers
install -m 644 deploy/systemd/moorage-manager.service /etc/systemd/system/
echo MOORAGE_MANAGER__LISTEN=0.0.0.0:8700 > /etc/moorage/manager.env
echo MOORAGE_MANAGER__LINK_LISTEN=0.0.0.0:8701 >> /etc/moorage/manager.env
echo MOORAGE_MANAGER__LINK_ADDRESS=192.0.2.1:8701 >> /etc/moorage/manager.env
systemctl start moorage-manager
until curl --fail --silent http://127.0.0.1:8700/readyz; do sleep 0.5; done
"""
CLI = "export MOORAGE_HOME=/var/lib/moorage; /opt/moorage/bin/moorage "


@pytest.fixture
def machines(home: Path) -> Iterator[Machines]:
    if os.geteuid() != 0 or not all(map(shutil.which, NEEDED)):
        pytest.skip(
            f"needs root and {', '.join(NEEDED)}: make test-cluster installs what is missing"
        )

    with Machines(
        home, {"one": "192.0.2.1", "node1": "192.0.2.11", "door": "192.0.2.12"}
    ) as machines:
        machines.install("one")
        machines.run("one", MANAGER)
        pip = PIP.format(log=home / "pip.log")
        text = PYTHON.format(python=sys.executable, moorage=MOORAGE, pip=pip)
        (home / "python").write_text(text)
        (home / "python").chmod(0o755)
        (home / "moorage-1-py3-none-any.whl").write_text("first")
        yield machines


def join(machines: Machines, name: str, token: str, *options: str) -> str:
    home = machines.home
    (home / "token").write_text(token)
    command = f"{SCRIPT} --manager http://192.0.2.1:8700 --wheel {home}/moorage-1-py3-none-any.whl"
    return machines.run(
        name, f"{command} --python {home}/python {' '.join(options)} < {home}/token"
    )


def pid(machines: Machines, name: str, unit: str) -> str:
    return machines.run(name, f"cat /run/units/{unit}")


def test_an_agent_and_a_proxy_join_and_a_second_run_changes_only_what_differs(
    machines: Machines,
) -> None:
    wheel = machines.home / "moorage-1-py3-none-any.whl"
    options = ("--id", "gpu-1", "--set", "'MOORAGE_AGENT__RUNTIMES=[\"process\"]'")
    token = machines.run("one", CLI + "join-tokens create 2> /dev/null")
    said = join(machines, "node1", token, *options)
    assert "agent gpu-1 joined" in said, said
    machines.run("one", f"until ({CLI}agents) | grep ALIVE | grep gpu-1; do sleep 0.5; done")
    installed = (machines.home / "pip.log").read_text().splitlines()
    assert [line.split()[-1] for line in installed] == [str(wheel), f"{wheel}[agent]"]
    first = pid(machines, "node1", "moorage-agent")

    said = join(machines, "node1", "", *options)  # a used token is not asked for again
    assert "has this wheel" in said, said
    assert "has joined already" in said, said
    assert pid(machines, "node1", "moorage-agent") == first
    assert (machines.home / "pip.log").read_text().splitlines() == installed

    said = join(machines, "node1", "", "--set", "'MOORAGE_AGENT__RUNTIMES=[]'")
    assert machines.run("node1", "cat /etc/moorage/agent.env") == "MOORAGE_AGENT__RUNTIMES=[]\n"
    second = pid(machines, "node1", "moorage-agent")
    assert second != first

    wheel.write_text("the next release")
    said = join(machines, "node1", "")
    assert "installed moorage-1" in said, said
    assert len((machines.home / "pip.log").read_text().splitlines()) == 4
    assert pid(machines, "node1", "moorage-agent") != second

    token = machines.run("one", CLI + "join-tokens create --proxy 2> /dev/null")
    said = join(machines, "door", token, "--kind", "proxy")
    assert re.search(r"proxy door-8800-\w+ joined", said), said
    machines.run(
        "door", "until curl --fail --silent http://127.0.0.1:8801/readyz; do sleep 0.5; done"
    )
    owner = machines.run("door", "stat -c %U:%a /var/lib/moorage-proxy")
    assert owner == "moorage:700\n"

    with pytest.raises(AssertionError, match="no join token was given"):
        join(machines, "one", "", "--kind", "proxy")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "--manager is missing"),
        (("--manager", "one:8700"), "--manager one:8700 is not an address"),
        (("--manager", "http://one:8700"), "--wheel is missing"),
        (
            ("--manager", "http://one:8700", "--wheel", "none.whl"),
            "--wheel none.whl cannot be read",
        ),
        (
            ("--manager", "http://one:8700", "--wheel", "README.md"),
            "--wheel README.md is not a wheel",
        ),
        (
            ("--manager", "http://one:8700", "--kind", "manager"),
            "--kind manager is not agent or proxy",
        ),
        (("--set", "runtimes"), "--set runtimes is not NAME=VALUE"),
        (("--id",), "--id needs a value"),
        (("--nonsense",), "unknown option --nonsense"),
    ],
)
def test_errors_name_the_flag(options: tuple[str, ...], named: str) -> None:
    done = subprocess.run([SCRIPT, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("join.sh: ")
    assert named in done.stderr


def test_help_names_every_option() -> None:
    done = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True)
    for option in ("--manager", "--wheel", "--kind", "--token-file", "--id", "--set", "--python"):
        assert f"\n  {option} " in done.stdout
