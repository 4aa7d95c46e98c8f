"""Agent and proxy as daemons of their own: joined by command, stopped politely and rudely, upgraded under
their kernels, shut out. Each has a state directory of its own, as on machines of their own."""

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

from .parts import Platform, kernels_below, until

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(300)]
SLOW = EndpointSpec(
    name="slow",
    engine="custom",
    command=[sys.executable, str(Path(__file__).with_name("slow_engine.py")), "{port}"],
    probe=Probe(path="/health"),
    resources={"cpu": "0.1", "mem": "64MiB"},
    stop_grace_s=2,
)
# The next release, as far as a manager can tell.
NEXT = "import moorage; moorage.__version__ = '0.2.0'"


class Site:
    """A manager whose links speak TLS, a node and an edge; ``join`` is what an administrator does on them."""

    def __init__(self, home: Path) -> None:
        homes = [home / name for name in ("boss", "node", "edge")]
        for path in homes:
            path.mkdir(mode=0o711)
        self.boss, self.node, self.edge = (Platform(path) for path in homes)
        self.boss.env["MOORAGE_COMMON__LINK_TLS"] = "on"
        for part in (self.node, self.edge):
            # What joining says is all that they know.
            for name in ("AGENT__MANAGER", "AGENT__ID", "PROXY__MANAGER"):
                del part.env[f"MOORAGE_{name}"]

    async def up(self) -> None:
        self.boss.start("manager")
        await until("the manager answers", self._answers)

    async def _answers(self) -> bool:
        async with self.boss.client() as client:
            return (await client.health()).status == "ok"

    def token(self, *options: str) -> str:
        made = self.boss.run("join-tokens", "create", *options)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def close(self) -> None:
        for part in (self.edge, self.node, self.boss):
            part.close()


@pytest.fixture
def fresh(home: Path) -> Iterator[Site]:
    made = Site(home)
    yield made
    made.close()
    assert kernels_below(home) == {}


async def ask(site: Site) -> str:
    messages = [{"role": "user", "content": "hello"}]
    words = chat(site.edge.openai_url, site.boss.key, "slow", messages, max_tokens=3)  # type: ignore[arg-type]
    return "".join([piece async for piece in words])


async def alive(site: Site, version: str = "0.1.0") -> bool:
    async with site.boss.client() as client:
        view = await client.get_agent("node-7")
        return (view.status, view.version) == (AgentStatus.ALIVE, version)


async def take_out_of_service(site: Site) -> None:
    """Cordon, drain and uncordon, as typed; the only agent keeps its replica: nothing could replace it."""
    run = site.boss.run
    assert run("agents", "cordon", "node-7").stdout == "node-7\n"
    assert "ALIVE cordoned" in run("agents").stdout
    assert "cordoned or draining: no new work" in run("plan", "--", "true").stdout
    both = run("agents", "drain", "node-7", "--stop", "--deadline", "1h")
    assert (both.returncode, "contradict each other" in both.stderr) == (2, True)
    assert run("agents", "drain", "node-7", "--deadline", "1h").returncode == 0
    shown = run("agents", "describe", "node-7").stdout
    assert "ALIVE draining" in shown
    assert "key:admin, since" in shown
    assert await ask(site)
    assert run("agents", "uncordon", "node-7").returncode == 0
    listed = json.loads(run("agents", "history", "node-7", "-o", "json").stdout)["history"]
    assert [(e["event"], e["actor"]) for e in listed[:3]] == [
        ("uncordon", "key:admin"),
        ("drain", "key:admin"),
        ("cordon", "key:admin"),
    ]
    assert (listed[-1]["event"], listed[-1]["actor"].partition(":")[0]) == ("join", "token")
    assert run("agents", "cordon", "nope").returncode == 3


async def test_join_serve_upgrade_and_shut_out(fresh: Site) -> None:
    await fresh.up()
    joined = fresh.node.run("agent", "join", fresh.boss.url, fresh.token(), "--id", "node-7")
    assert joined.returncode == 0, joined.stderr
    joined = fresh.edge.run("proxy", "join", fresh.boss.url, fresh.token("--proxy"))
    assert joined.returncode == 0, joined.stderr
    fresh.node.start("agent")
    fresh.edge.start("proxy")
    await until("the agent is heard", lambda: alive(fresh))
    checked = fresh.node.run("agent", "doctor", "-o", "json")
    results = {result["name"]: result for result in json.loads(checked.stdout)}
    assert results["manager"]["status"] == "ok", results
    assert results["manager"]["detail"].endswith("by mTLS")

    async with fresh.boss.client() as client:
        await client.create_endpoint(SLOW)
        await until("the model answers, through TLS on both links", lambda: ask(fresh))
        [(pid, kernel)] = kernels_below(fresh.node.home).items()

        assert fresh.node.stop("agent") == 0
        assert kernels_below(fresh.node.home) == {pid: kernel}, "an orderly stop leaves kernels alone"
        assert (await client.get_agent("node-7")).draining, "it said goodbye: nothing new is placed there"
        assert await ask(fresh), "and the model answers without its agent"
        (fresh.node.home / "next").mkdir()
        (fresh.node.home / "next" / "sitecustomize.py").write_text(NEXT)
        path = os.pathsep.join([str(fresh.node.home / "next"), os.environ.get("PYTHONPATH", "")])
        log = (fresh.node.home / "next.out").open("ab")
        command = [sys.executable, "-m", "moorage", "agent"]
        env = fresh.node.env | {"PYTHONPATH": path.rstrip(os.pathsep)}
        upgraded = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            await until("the next version has taken over", lambda: alive(fresh, "0.2.0"))
            assert not (await client.get_agent("node-7")).draining
            assert kernels_below(fresh.node.home) == {pid: kernel}
            [replica] = (await client.get_endpoint("slow")).sessions
            assert replica.status is Status.RUNNING
        finally:
            upgraded.kill()
            upgraded.wait()
        assert kernels_below(fresh.node.home) == {pid: kernel}, "nor does a rude one end them"
        fresh.node.start("agent")
        await until("the former version has taken over", lambda: alive(fresh))
        assert kernels_below(fresh.node.home) == {pid: kernel}
        assert await ask(fresh)
        assert "newer than the manager" in fresh.boss.output("manager")

        await take_out_of_service(fresh)
        shut_out = fresh.boss.run("peers", "revoke", "agent", "node-7")
        assert shut_out.returncode == 0, shut_out.stderr

        async def noticed() -> bool:
            return "was revoked" in fresh.node.output("agent")

        await until("the agent says why it is not let in", noticed)
        assert fresh.node.run("agent", "doctor").returncode == 1


async def test_what_cannot_join_says_why(fresh: Site) -> None:
    await fresh.up()
    good = fresh.token()
    for words, code, said in (
        (("http://127.0.0.1:1", good), 1, "no manager answers at http://127.0.0.1:1"),
        (("nonsense", good), 2, "is not the address of a manager"),
        ((fresh.boss.url, "mgj-short"), 2, "not a join token"),
        ((fresh.boss.url,), 2, "no join token was given"),
        ((fresh.boss.url, good, "--id", "no/name"), 2, "is not a name for"),
    ):
        refused = fresh.node.run("agent", "join", *words)
        assert (refused.returncode, said in refused.stderr) == (code, True), refused.stderr
    assert fresh.node.run("agent", "join", fresh.boss.url, good, "--id", "node-7").returncode == 0
    again = fresh.edge.run("agent", "join", fresh.boss.url, good, "--id", "node-8")
    assert (again.returncode, "could be used once, and was" in again.stderr) == (4, True), again.stderr
    clash = fresh.edge.run("agent", "join", fresh.boss.url, fresh.token(), "--id", "node-7")
    assert (clash.returncode, "another agent named 'node-7' has joined" in clash.stderr) == (1, True)
    other = fresh.token()
    [listed] = json.loads(fresh.boss.run("join-tokens", "list", "-o", "json").stdout)["join_tokens"][-1:]
    assert fresh.boss.run("join-tokens", "delete", listed["id"]).returncode == 0
    removed = fresh.edge.run("agent", "join", fresh.boss.url, other, "--id", "node-8")
    assert (removed.returncode, "was removed" in removed.stderr) == (4, True), removed.stderr
