"""Two managers with one database: one of them dies or stops, and neither work nor requests are
lost.

Each daemon has its own state directory, as if on its own machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.common.model.status import AgentStatus, Status
from moorage.common.views.resources import SessionView
from moorage.sdk import chat

from .harness import Platform, kernels_below, until

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(300)]
NODES = ("node-1", "node-2")
SLOW = EndpointSpec(
    name="slow",
    engine="custom",
    command=[sys.executable, str(Path(__file__).with_name("slow_engine.py")), "{port}"],
    probe=Probe(path="/health"),
    resources={"cpu": "0.1", "mem": "64MiB"},
)


class Site:
    """Managers ``a`` and ``b``, an agent on each of two nodes, and a proxy."""

    def __init__(self, home: Path, dsn: str) -> None:
        self.home = home
        names = ("a", "b", *NODES, "edge")
        for name in names:
            (home / name).mkdir(mode=0o711)

        self.a, self.b, *self.nodes, self.edge = (Platform(home / name) for name in names)
        links = ",".join(m.env["MOORAGE_MANAGER__LINK_LISTEN"] for m in (self.a, self.b))
        for platform in (self.a, self.b, *self.nodes, self.edge):
            platform.env |= {
                "MOORAGE_COMMON__LINK_TOKEN": "shared",
                # Each has its own home, so none finds the socket of a manager.
                "MOORAGE_COMMON__LINK_TLS": "off",
                "MOORAGE_MANAGER__DSN": dsn,
                "MOORAGE_AGENT__MANAGER": links,
                "MOORAGE_PROXY__MANAGER": links,
                "MOORAGE_AGENT__ID": platform.home.name,
            }

    async def up(self) -> None:
        self.a.start("manager")
        await self.a.wait_until_ready()
        (self.b.home / "admin-key").write_text(self.a.key)
        self.b.start("manager")
        await self.b.wait_until_ready()
        for node in self.nodes:
            node.start("agent")
        self.edge.start("proxy")
        await until("both agents are connected", lambda: self.connected_to(self.a, self.b))

    async def connected_to(self, *managers: Platform) -> bool:
        """Whether every agent is connected to one of these managers."""
        links = {manager.env["MOORAGE_MANAGER__LINK_LISTEN"] for manager in managers}
        async with managers[0].client() as client:
            agents = await client.agents.list()
        return len(agents) == len(NODES) and all(
            agent.status is AgentStatus.ALIVE and agent.manager in links for agent in agents
        )

    async def get(self, manager: Platform, name: str) -> SessionView:
        async with manager.client() as client:
            return await client.sessions.get(name)

    async def run_on(self, manager: Platform, name: str, node: str) -> None:
        """A session that runs on a node until it is stopped."""
        spec = SessionSpec(
            name=name,
            type="interactive",
            command=["sh", "-c", "echo hello from the log; exec sleep 1000"],
            resources={"cpu": "0.1"},
            agents=[node],
            workspace="keep",
        )
        async with manager.client() as client:
            await client.sessions.create(spec)

        async def runs() -> bool:
            return (await self.get(manager, name)).status is Status.RUNNING

        await until(f"{name} runs", runs)

    async def chat_once(self, manager: Platform) -> str:
        messages = [{"role": "user", "content": "hello"}]
        stream = chat(self.edge.openai_url, manager.key, "slow", messages, max_tokens=3)  # type: ignore[arg-type]
        return "".join([piece async for piece in stream])

    def close(self) -> None:
        with ExitStack() as stack:
            for platform in (self.a, self.b, *self.nodes, self.edge):
                stack.callback(platform.close)


@pytest.fixture
def site(home: Path, migrated_database: str) -> Iterator[Site]:
    created = Site(home, migrated_database)
    yield created
    created.close()
    assert kernels_below(home) == {}


def check_requests(manager: Platform, name: str) -> None:
    """Everything that needs the session's agent works through this manager, wherever the agent is
    connected."""
    log = manager.run("logs", name)
    assert (log.returncode, log.stdout) == (0, "hello from the log\n"), log.stderr
    done = manager.run("exec", name, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    copied = manager.run("exec", "-i", name, "--", "sh", "-c", "cat; pwd >&2", timeout=30)
    assert copied.returncode == 0, copied.stderr
    file = manager.home / f"copied-{name}"
    file.write_bytes(os.urandom(300_000))
    for source, target in ((str(file), f"{name}:copy"), (f"{name}:copy", f"{file}-back")):
        copied = manager.run("cp", source, target)
        assert copied.returncode == 0, copied.stderr

    assert Path(f"{file}-back").read_bytes() == file.read_bytes()


RELOADS = """
import json, os, signal, sys, time

def report(**line):
    with open(os.environ["MOORAGE_PROGRESS"], "a") as file:
        print(json.dumps(line), file=file)

def load(*_):
    with open(sys.argv[1] + "/asked", "a") as file:
        print("asked", file=file)
    while not os.path.exists(sys.argv[1] + "/gate"):
        time.sleep(0.05)
    report(reloaded=True)

signal.signal(signal.SIGHUP, load)
report(message="serving")
while True:
    signal.pause()
"""


async def start_daemon(site: Site, manager: Platform) -> None:
    """A session whose program acknowledges a reload when the gate is opened."""
    spec = SessionSpec.model_validate(
        {
            "name": "daemon", "type": "interactive", "agents": [NODES[0]], "resources": {"cpu": 0.1},
            "command": [sys.executable, "-c", RELOADS, str(site.home)],
            "reload": {"signal": "HUP", "acknowledge": "progress", "timeout_s": 300},
        }
    )  # fmt: skip
    async with manager.client() as client:
        await client.sessions.create(spec)
        await client.sessions.wait(
            "daemon", lambda view: view.kernels[0].progress is not None, timeout_s=60
        )


async def check_reload(site: Site, asked: SessionView, manager: Platform) -> None:
    """An operation requested from the lost manager completes through the other one, and the program
    was asked only once."""
    (site.home / "gate").touch()
    async with manager.client() as client:
        view = await client.sessions.wait_reloaded(asked, timeout_s=60)

    before = asked.kernels[0].reload
    after = view.kernels[0].reload
    assert before is not None
    assert after is not None
    assert (before.state, after.state) == ("requested", "reloaded")
    assert after.ended == before.generation
    assert (site.home / "asked").read_text() == "asked\n"


async def test_managers_take_over_from_each_other(site: Site) -> None:
    await site.up()
    a = site.a
    b = site.b
    async with a.client() as client:
        await client.endpoints.create(SLOW)

    for node in NODES:
        await site.run_on(a, f"work-{node}", node)

    await until("the model answers", lambda: site.chat_once(a))
    kernels = kernels_below(site.home)
    for manager in (a, b):
        for node in NODES:
            await asyncio.to_thread(check_requests, manager, f"work-{node}")

        listed = await asyncio.to_thread(manager.run, "workspaces", "-o", "json")
        assert all(node in listed.stdout for node in NODES), (
            "the workspaces of both nodes, by either manager"
        )

    await start_daemon(site, a)
    async with a.client() as client:
        reload = await client.sessions.reload("daemon")

    await until("the program is asked", lambda: asyncio.to_thread((site.home / "asked").exists))
    a.kill("manager")
    assert await site.chat_once(b)
    await until("both agents are connected to the other manager", lambda: site.connected_to(b))
    await check_reload(site, reload, b)
    await site.run_on(b, "after-kill", NODES[0])
    await asyncio.to_thread(check_requests, b, "after-kill")

    a.start("manager")
    await a.wait_until_ready()
    assert b.stop("manager") == 0
    await until(
        "both agents are connected to the first manager again", lambda: site.connected_to(a)
    )
    await site.run_on(a, "after-stop", NODES[1])
    assert await site.chat_once(a)
    for node in NODES:
        work = await site.get(a, f"work-{node}")
        assert (work.status, work.attempt) == (Status.RUNNING, 1)

    assert kernels.items() <= kernels_below(site.home).items(), "everything that ran still runs"
