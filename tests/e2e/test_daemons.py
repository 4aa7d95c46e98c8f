"""Agent and proxy as separate daemons: registration, shutdown, crash, upgrade under running
kernels, revocation.

Each daemon has its own state directory, as if on its own machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.model.status import AgentStatus, Status
from moorage.sdk import chat

from .harness import Platform, kernels_below, until

pytestmark = pytest.mark.timeout(300)
SLOW = EndpointSpec(
    name="slow",
    engine="custom",
    command=[sys.executable, str(Path(__file__).with_name("slow_engine.py")), "{port}"],
    probe=Probe(path="/health"),
    resources={"cpu": "0.1", "mem": "64MiB"},
    stop_grace_s=2,
)
# Makes a daemon report itself as the next release.
NEXT_VERSION = "import moorage; moorage.__version__ = '0.2.0'"


class Site:
    """A manager with TLS on its links, a host for an agent (``node``) and one for a proxy
    (``edge``)."""

    def __init__(self, home: Path) -> None:
        homes = [home / name for name in ("manager", "node", "edge")]
        for path in homes:
            path.mkdir(mode=0o711)
        self.manager, self.node, self.edge = (Platform(path) for path in homes)
        self.manager.env["MOORAGE_COMMON__LINK_TLS"] = "on"
        for platform in (self.node, self.edge):
            # Registration must supply all of these.
            for name in ("AGENT__MANAGER", "AGENT__ID", "PROXY__MANAGER"):
                del platform.env[f"MOORAGE_{name}"]

    async def up(self) -> None:
        self.manager.start("manager")
        await until("the manager answers", self._answers)

    async def _answers(self) -> bool:
        async with self.manager.client() as client:
            return (await client.health()).status == "ok"

    def token(self, *options: str) -> str:
        created = self.manager.run("join-tokens", "create", *options)
        assert created.returncode == 0, created.stderr
        return created.stdout.strip()

    def close(self) -> None:
        for platform in (self.edge, self.node, self.manager):
            platform.close()


@pytest.fixture
def site(home: Path) -> Iterator[Site]:
    created = Site(home)
    yield created
    created.close()
    assert kernels_below(home) == {}


async def chat_once(site: Site) -> str:
    messages = [{"role": "user", "content": "hello"}]
    stream = chat(site.edge.openai_url, site.manager.key, "slow", messages, max_tokens=3)  # type: ignore[arg-type]
    return "".join([piece async for piece in stream])


async def alive(site: Site, version: str = "0.1.0") -> bool:
    async with site.manager.client() as client:
        view = await client.agents.get("node-7")
        return (view.status, view.version) == (AgentStatus.ALIVE, version)


async def cordon_drain_uncordon(site: Site) -> None:
    """Cordon, drain and uncordon. The only agent keeps its replica, because there is no place for
    another one."""
    run = site.manager.run
    assert run("agents", "cordon", "node-7").stdout == "node-7\n"
    assert "ALIVE cordoned" in run("agents").stdout
    assert "cordoned or draining: accepts no new work" in run("plan", "--", "true").stdout
    both = run("agents", "drain", "node-7", "--stop", "--deadline", "1h")
    assert (both.returncode, "contradict each other" in both.stderr) == (2, True)
    assert run("agents", "drain", "node-7", "--deadline", "1h").returncode == 0
    shown = run("agents", "describe", "node-7").stdout
    assert "ALIVE draining" in shown
    assert "key:admin, since" in shown
    assert await chat_once(site)
    assert run("agents", "uncordon", "node-7").returncode == 0
    listed = json.loads(run("agents", "history", "node-7", "-o", "json").stdout)["history"]
    assert [(e["event"], e["actor"]) for e in listed[:3]] == [
        ("uncordon", "key:admin"),
        ("drain", "key:admin"),
        ("cordon", "key:admin"),
    ]
    assert (listed[-1]["event"], listed[-1]["actor"].partition(":")[0]) == ("join", "token")
    assert run("agents", "cordon", "nope").returncode == 3


async def test_join_serve_upgrade_and_revoke(site: Site) -> None:
    await site.up()
    joined = site.node.run("agent", "join", site.manager.url, "--id", "node-7", stdin=site.token())
    assert joined.returncode == 0, joined.stderr
    joined = site.edge.run("proxy", "join", site.manager.url, stdin=site.token("--proxy"))
    assert joined.returncode == 0, joined.stderr
    site.node.start("agent")
    site.edge.start("proxy")
    await until("the agent is connected", lambda: alive(site))
    checked = site.node.run("agent", "doctor", "-o", "json")
    results = {result["name"]: result for result in json.loads(checked.stdout)}
    assert results["manager"]["status"] == "ok", results
    assert results["manager"]["detail"].endswith("by mTLS")

    async with site.manager.client() as client:
        await client.endpoints.create(SLOW)
        await until("the model answers, through TLS on both links", lambda: chat_once(site))
        [(pid, kernel)] = kernels_below(site.node.home).items()

        assert site.node.stop("agent") == 0
        assert kernels_below(site.node.home) == {pid: kernel}, (
            "an orderly shutdown keeps kernels running"
        )
        assert (await client.agents.get("node-7")).draining, (
            "it sent a shutdown notice: nothing new is placed there"
        )
        assert await chat_once(site), "the model answers without its agent"
        (site.node.home / "next").mkdir()
        (site.node.home / "next" / "sitecustomize.py").write_text(NEXT_VERSION)
        path = os.pathsep.join([str(site.node.home / "next"), os.environ.get("PYTHONPATH", "")])
        log = (site.node.home / "next.out").open("ab")
        command = [sys.executable, "-m", "moorage", "agent"]
        env = site.node.env | {"PYTHONPATH": path.rstrip(os.pathsep)}
        upgraded = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            await until("the next version has taken over", lambda: alive(site, "0.2.0"))
            assert not (await client.agents.get("node-7")).draining
            assert kernels_below(site.node.home) == {pid: kernel}
            [replica] = (await client.endpoints.get("slow")).sessions
            assert replica.status is Status.RUNNING
        finally:
            upgraded.kill()
            upgraded.wait()

        assert kernels_below(site.node.home) == {pid: kernel}, "a crash keeps them running, too"
        site.node.start("agent")
        await until("the previous version has taken over", lambda: alive(site))
        assert kernels_below(site.node.home) == {pid: kernel}
        assert await chat_once(site)
        assert "newer than the manager" in site.manager.output("manager")

        await cordon_drain_uncordon(site)
        revoked = site.manager.run("peers", "revoke", "agent", "node-7")
        assert revoked.returncode == 0, revoked.stderr

        async def logs_revocation() -> bool:
            return "was revoked" in site.node.output("agent")

        await until("the agent logs why it was rejected", logs_revocation)
        assert site.node.run("agent", "doctor").returncode == 1


async def test_rejected_registrations_explain_why(site: Site) -> None:
    await site.up()
    good = site.token()
    for arguments, stdin, code, text in (
        (("http://127.0.0.1:1",), good, 1, "no manager answers at http://127.0.0.1:1"),
        (("nonsense",), good, 2, "is not the address of a manager"),
        ((site.manager.url,), "mgj-short", 2, "not a join token"),
        ((site.manager.url,), "", 2, "no join token was given"),
        (
            (site.manager.url, "--token-file", "/nowhere"),
            "",
            2,
            "--token-file /nowhere cannot be read",
        ),
        ((site.manager.url, "--id", "no/name"), good, 2, "is not a name for"),
        ((site.manager.url, good), "", 2, "unexpected extra argument"),
    ):
        rejected = site.node.run("agent", "join", *arguments, stdin=stdin)
        assert (rejected.returncode, text in rejected.stderr) == (code, True), rejected.stderr

    assert (
        site.node.run("agent", "join", site.manager.url, "--id", "node-7", stdin=good).returncode
        == 0
    )
    again = site.edge.run("agent", "join", site.manager.url, "--id", "node-8", stdin=good)
    assert (again.returncode, "could be used once" in again.stderr) == (4, True), again.stderr
    clash = site.edge.run("agent", "join", site.manager.url, "--id", "node-7", stdin=site.token())
    assert (clash.returncode, "another agent named 'node-7' has joined" in clash.stderr) == (
        1,
        True,
    )
    other = site.token()
    [listed] = json.loads(site.manager.run("join-tokens", "list", "-o", "json").stdout)[
        "join_tokens"
    ][-1:]
    assert site.manager.run("join-tokens", "delete", listed["id"]).returncode == 0
    removed = site.edge.run("agent", "join", site.manager.url, "--id", "node-8", stdin=other)
    assert (removed.returncode, "was deleted" in removed.stderr) == (4, True), removed.stderr
