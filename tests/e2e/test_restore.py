"""Loss of the database, and its restoration from a backup into a fresh state directory, under
running kernels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.views.resources import AgentView
from moorage.sdk import Client

from .harness import kernels_below, until
from .test_daemons import SLOW, Site, alive, chat_once, site

__all__ = ["site"]  # a fixture
pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(300)]


def sleeper(name: str) -> SessionSpec:
    return SessionSpec.model_validate(
        {
            "name": name,
            "type": "interactive",
            "command": ["sleep", "600"],
            "resources": {"cpu": 0.1},
        }
    )


async def running(client: Client, name: str) -> str:
    """The kernel id of a session, once it runs."""

    async def runs() -> bool:
        return (await client.sessions.get(name)).status is Status.RUNNING

    await until(f"{name} runs", runs)
    return (await client.sessions.get(name)).kernels[-1].id


def manager_in_fresh_home(site: Site, home: Path) -> None:
    """The database is lost with the manager's state directory. Files that a backup leaves out are
    copied."""
    site.manager.kill("manager")
    home.mkdir(mode=0o711)
    for name in ("ca-secret", "admin-key", "link-token"):
        shutil.copy(site.manager.home / name, home / name)
    site.manager.home.rename(home / "lost")  # not removed: its Postgres is still shutting down
    site.manager.env["MOORAGE_HOME"] = str(home)
    site.manager.home = home


async def back_up_then_work(site: Site, backup: Path) -> tuple[str, str]:
    """A served model, a backup, and later work that the backup does not contain. Returns the kernel
    of a session that it contains, and of one that it does not."""
    run = site.manager.run
    async with site.manager.client() as client:
        await client.endpoints.create(SLOW)
        await client.sessions.create(sleeper("kept"))
        known = await running(client, "kept")
        await until("the model answers", lambda: chat_once(site))
        done = run("db", "backup", str(backup))
        assert done.returncode == 0, done.stderr
        assert "ca-secret" in done.stdout, "it names what it leaves out"
        await client.sessions.create(sleeper("later"))
        unknown = await running(client, "later")

    assert run("keys", "create", "later").returncode == 0
    assert run("agents", "cordon", "node-7").returncode == 0
    checked = run("db", "check")
    assert (checked.returncode, "no drift" in checked.stdout) == (0, True), (
        checked.stdout + checked.stderr
    )
    assert run("db", "restore", str(backup), "--overwrite").returncode == 1, (
        "a manager uses the database"
    )

    return known, unknown


async def check_adopted(site: Site, client: Client, known: str, unknown: str) -> None:
    """Live kernels are adopted, and those that the backup does not contain are listed."""

    async def reported() -> AgentView | None:
        view = await client.agents.get("node-7")
        return view if view.restored_at is None else None

    view = await until("the agent has reported", reported)
    assert [kernel.kernel_id for kernel in view.unknown_kernels] == [unknown]
    assert (view.ready, view.cordon) == (False, ""), "the cordon came after the backup"
    kept = await client.sessions.get("kept")
    assert (kept.status, [kernel.id for kernel in kept.kernels]) == (Status.RUNNING, [known])
    assert await chat_once(site)
    assert await client.sessions.list(name="later") == []
    run = site.manager.run
    assert '"later"' not in run("keys", "list", "-o", "json").stdout
    listed = json.loads(run("db", "check", "-o", "json").stdout)
    assert [(drift["check"], drift["subject"]) for drift in listed] == [("unknown", unknown)]
    assert unknown in run("agents", "describe", "node-7").stdout
    assert "ALIVE not-ready" in run("agents").stdout
    await client.sessions.create(sleeper("new"))
    assert "not ready" in run("why", "new").stdout


async def test_restore_adopts_what_lives_and_lists_what_the_backup_does_not_know(
    site: Site, home: Path
) -> None:
    await site.up()
    assert (
        site.node.run(
            "agent", "join", site.manager.url, "--id", "node-7", stdin=site.token()
        ).returncode
        == 0
    )
    assert (
        site.edge.run("proxy", "join", site.manager.url, stdin=site.token("--proxy")).returncode
        == 0
    )
    site.node.start("agent")
    site.edge.start("proxy")
    await until("the agent is connected", lambda: alive(site))
    backup = home / "moorage.dump"
    known, unknown = await back_up_then_work(site, backup)

    kernels = kernels_below(site.node.home)
    manager_in_fresh_home(site, home / "manager-2")
    assert await chat_once(site), "the model answers without manager and database"
    restored = site.manager.run("db", "restore", str(backup))
    assert restored.returncode == 0, restored.stderr
    assert "agents that must report before they get new work: 1" in restored.stdout
    again = site.manager.run("db", "restore", str(backup))
    assert (again.returncode, "not empty" in again.stderr) == (1, True), again.stderr
    await site.up()
    async with site.manager.client() as client:
        await check_adopted(site, client, known, unknown)
        assert kernels_below(site.node.home) == kernels, "nothing was ended"

    site.manager.stop("manager")
    site.manager.env["MOORAGE_MANAGER__UNKNOWN_KERNELS"] = "end"
    await site.up()

    async with site.manager.client() as client:
        await running(client, "new")
        left = set(kernels_below(site.node.home).values())
        assert (known in left, unknown in left) == (True, False)
        assert (await client.agents.get("node-7")).ready
        assert site.manager.run("db", "check").returncode == 0
        assert await chat_once(site)

    assert "refusing orders" not in site.node.output("agent")
    assert "rejected a route table" not in site.edge.output("proxy")
