"""A rolling upgrade of a whole installation under load, in the steps of ``moorage upgrade plan``,
then a downgrade, and the upgrade again."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import until
from tests.faults import account
from tests.faults.findings import Invariant
from tests.faults.invariants import check_invariants
from tests.faults.run import converge
from tests.previous_release import unpack_previous_release

from .installation import AGENTS, COMPONENTS, LINK, MANAGERS, PROXIES, Installation
from .run import Faults
from .traffic import Traffic, had_living_way

VERSION = '__version__ = "0.1.0"', '__version__ = "0.0.9"'
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def unpack_before(directory: Path) -> Path:
    """Report the previous release as its version, because a plan leaves out components that already
    run this release."""
    sources = unpack_previous_release(directory)
    init = sources / "moorage/__init__.py"
    assert VERSION[0] in init.read_text()
    init.write_text(init.read_text().replace(*VERSION))

    return sources


class Administrator:
    """Commands of this release, run where a manager runs."""

    def __init__(self, installation: Installation) -> None:
        self._all = installation

    async def run(self, *command: str, code: int = 0) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._all.hosts.prefix(MANAGERS[0]), sys.executable, "-m", "moorage", *command,
            env=self._all.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, errors = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode == code, (
            f"moorage {' '.join(command)}: {out.decode()}{errors.decode()}"
        )
        return out.decode()

    async def plan(self) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads(await self.run("upgrade", "plan", "-o", "json"))
        assert not [each for each in plan["problems"] if each["status"] == "fail"], plan["problems"]
        return plan

    async def has_nothing_to_do(self) -> bool:
        return (await self.plan())["steps"] == []

    def name_of(self, link: str) -> str:
        names = {f"{self._all.hosts.addresses[name]}:{LINK}": name for name in MANAGERS}
        return names[link]


async def upgrade(admin: Administrator, faults: Faults, home: Path) -> list[str]:
    """Run each step of the plan in order. Returns what was restarted or run."""
    done: list[str] = []
    for step in (await admin.plan())["steps"]:
        if step["part"] == "database":
            for command in step["commands"]:
                words = command.replace("/backups/", f"{home}/").split()[1:]
                await admin.run(*words)
                done.append(" ".join(words[:2]))
        else:
            for subject in step["subjects"]:
                component = admin.name_of(subject) if step["part"] == "manager" else subject
                await faults.upgrade(component)
                done.append(component)

    return done


async def test_upgrade_way_back_and_upgrade_again(home: Path) -> None:
    installation = Installation(home, unpack_before(home / "before"))
    try:
        found = await _run(installation, Traffic(installation, seed=19, per_s=1.0, engine_gpus=5))
    except OSError as error:
        pytest.skip(f"SKIPPED: no network namespaces on this machine: {error}")
    finally:
        await installation.finish()
    assert {each.name: each.violations for each in found if each.violations} == {}


async def _run(installation: Installation, traffic: Traffic) -> list[Invariant]:
    await installation.start_everything(COMPONENTS)
    await account.begin(installation.postgres.dsn_of(installation.postgres.primary))
    await traffic.create_endpoints()
    await installation.replicas_serve()
    admin = Administrator(installation)
    faults = Faults(installation, traffic, traffic.seed)
    load = asyncio.create_task(traffic.run(3600))
    try:
        led = await installation.leader()
        done = await upgrade(admin, faults, installation.home)
        assert done[:3] == ["db backup", "db verify", "db upgrade"]
        assert done[5] == led, f"the leader is the last manager: {done}"
        assert (set(done[3:6]), done[6:]) == (set(MANAGERS), [*PROXIES, *AGENTS])
        await until("the plan is done", admin.has_nothing_to_do)

        await admin.run("db", "downgrade")
        for component in (*MANAGERS, *PROXIES, *AGENTS):
            await faults.restart_as_previous(component)

        # The leader is of the previous release: no manager of this release runs.
        await installation.leader()

        await admin.run("db", "upgrade")
        assert set(await upgrade(admin, faults, installation.home)) == set(COMPONENTS)
    finally:
        traffic.stop()
        await load

    not_converged: list[str] = []
    try:
        await converge(installation, traffic)
    except AssertionError as error:
        not_converged.append(str(error))

    invariants, _ = await check_invariants(installation, traffic, faults.injected)
    living = [f"{each}" for each in traffic.failed if had_living_way(each, faults.injected)]
    return [
        *invariants,
        Invariant("a request that has a living way is answered", traffic.chats.total(), living),
        Invariant("the platform converges", 1, not_converged),
        Invariant("no component exits on its own", len(COMPONENTS), installation.exited()),
    ]
