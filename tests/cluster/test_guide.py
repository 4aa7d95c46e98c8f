"""``docs/cluster.md``, followed word for word on four machines, with a real etcd and Postgres.

Only the installation with pip is replaced: the tree under test is used instead.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.cluster.guide import addresses, steps
from tests.cluster.machines import Machines

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
GUIDE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
NEEDED = (
    "etcd",
    "etcdctl",
    "pg_createcluster",
    "nsenter",
    "ip",
    "openssl",
    "systemd-sysusers",
    "curl",
)
INSTALLED = re.compile(r"python3 -m venv .*|/opt/moorage/bin/pip install .*")


def test_each_step_names_its_machines() -> None:
    known = set(addresses(GUIDE))
    assert len(known) == 4
    assert all(machines and set(machines) <= known for machines, _ in steps(GUIDE))


def test_the_guide_works(home: Path) -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, NEEDED)):
        pytest.skip(
            f"needs root and {', '.join(NEEDED)}: make test-cluster installs what is missing"
        )

    said: dict[str, str] = {}
    with Machines(home, addresses(GUIDE)) as machines:
        for names, block in steps(GUIDE):
            commands = "\n".join(
                line for line in block.splitlines() if not INSTALLED.fullmatch(line)
            )
            for name in names:
                if commands != block:
                    machines.install(name)
                said[block] = machines.run(name, commands)

        everything = "".join(said.values())
        for expected in ("the cluster works", "one manager less", "two is the primary"):
            assert expected in everything, everything[-3000:]

        listed = machines.run("two", "moorage managers -o json")
        assert listed.count('"link": ') == 3, listed
        plan = machines.run("two", "moorage upgrade plan")
        assert "nothing to do" in plan, plan
        found = machines.run("three", "moorage doctor --cluster || true")
        assert "ok      managers" in found, found
        assert "ok      proxies" in found, found
