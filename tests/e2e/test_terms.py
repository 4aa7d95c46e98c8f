"""A leader is killed while it has actions scheduled for later: the next one carries them out.

One platform serves all kinds of timers: two managers with one database, a node, a site, and a
proxy.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import asyncpg
import pytest
import pytest_asyncio

from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.reasons import Reason
from moorage.common.model.roles import Role
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import LIVE, TERMINAL, Status
from moorage.common.views.budgets import BudgetSpec
from moorage.common.views.keys import KeySpec
from moorage.common.views.resources import GroupOptions, SessionView
from moorage.manager.serving.groups import FULL_S
from moorage.sdk import Client
from tests.heappe import HeappeServer, Script, ScriptedCluster, Site, Template, Timing
from tests.hpc.sites import PROGRAM, heappe_agent

from .harness import Platform, until

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(300)]
ENGINE = str(Path(__file__).with_name("slow_engine.py"))
WITHIN_S = 60.0
RETURNS_S = 30.0  # longer than the second manager needs to become leader


class Daemons:
    """Managers ``a`` and ``b``, of which ``a`` leads, the agents of a node and a site, and a
    proxy."""

    def __init__(self, home: Path, dsn: str, site_url: str) -> None:
        names = ("a", "b", "node", "login", "edge")
        for name in names:
            (home / name).mkdir(mode=0o711)

        self.a, self.b, self.node, self.login, self.edge = (Platform(home / name) for name in names)
        self.all = self.a, self.b, self.node, self.login, self.edge
        links = ",".join(m.env["MOORAGE_MANAGER__LINK_LISTEN"] for m in (self.a, self.b))
        for one in self.all:
            one.env |= {
                "MOORAGE_COMMON__LINK_TOKEN": "shared",
                # Each has its own home, so none finds the socket of a manager.
                "MOORAGE_COMMON__LINK_TLS": "off",
                "MOORAGE_MANAGER__DSN": dsn,
                "MOORAGE_AGENT__MANAGER": links,
                "MOORAGE_PROXY__MANAGER": links,
                "MOORAGE_AGENT__ID": one.home.name,
            }

        self.login.env |= heappe_agent(site_url) | {"MOORAGE_AGENT__RESOURCE_GROUP": "site"}

    async def start(self) -> None:
        self.a.start("manager")
        await self.a.wait_until_ready()
        (self.b.home / "admin-key").write_text(self.a.key)

        async with self.a.client() as client:
            options = {
                "runtime": "heappe",
                "node_type": "gpu",
                "template": "moorage",
                "walltime_s": 60,
            }
            options["successor_at"] = 0.5  # 30 s before it ends
            await client.groups.update("site", GroupOptions.model_validate({"hpc": options}))

        for one in (self.node, self.login):
            one.start("agent")

        self.edge.start("proxy")

    async def follow(self) -> None:
        """The second manager waits for the lease."""
        self.b.start("manager")
        await self.b.wait_until_ready()

    def close(self) -> None:
        with ExitStack() as stack:
            for one in self.all:
                stack.callback(one.close)


@pytest_asyncio.fixture
async def daemons(home: Path, migrated_database: str) -> AsyncIterator[Daemons]:
    site = Site(templates=(Template(11, "moorage", 7, command=PROGRAM),))
    server = HeappeServer("6.5", site=site, timing=Timing(poll_s=0.5, cache_s=0.2))
    assert isinstance(server.cluster, ScriptedCluster)
    server.cluster.script = lambda job: Script(engine="program")
    await server.start()
    made = Daemons(home, migrated_database, server.url)
    yield made
    made.close()
    await server.stop()


def model(name: str, **fields: object) -> EndpointSpec:
    given = {
        "name": name, "engine": "custom", "command": [sys.executable, ENGINE, "{port}", "{host}"],
        "probe": {"path": "/health"}, "resources": {"cpu": "0.1", "mem": "64MiB"},
    }  # fmt: skip
    return EndpointSpec.model_validate(given | fields)


async def replicas(client: Client, name: str) -> list[SessionView]:
    return await client.sessions.list(endpoint=name)


async def ask(platform: Platform, key: str, name: str) -> int:
    body = {"model": name, "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{platform.openai_url}/chat/completions"
    async with aiohttp.ClientSession(headers=headers) as http, http.post(url, json=body) as answer:
        return answer.status


async def plan_everything(client: Client, url: str, failed: Path) -> None:
    """Create the objects that wait for their time. ``failed``: the file by which a program
    recognizes its second attempt."""
    await client.endpoints.create(model("job", resource_group="site"))
    await client.endpoints.create(model("life", max_lifetime_s=95))
    asleep = {"min": 0, "max": 1, "idle_timeout_s": 600}
    await client.endpoints.create(model("asleep", replicas=0, autoscale=asleep))
    again = ["sh", "-c", f"test -e {failed} || {{ touch {failed}; exit 3; }}"]
    resources = {"cpu": "0.1"}
    retried = {"name": "again", "command": again, "resources": resources, "retries": 1}
    await client.sessions.create(SessionSpec.model_validate(retried | {"retry_backoff_s": 20}))
    key = (await client.keys.create(KeySpec(name="ann", user="ann", role=Role.ADMIN))).secret
    async with Client(url, key) as ann:
        paid = {"name": "paid", "command": ["sleep", "1000"], "resources": resources}
        await ann.sessions.create(SessionSpec.model_validate(paid))

    limit = BudgetSpec(hard=3_000, policy="stop")  # 30 s at a tenth of a CPU
    await client.budgets.set("user", "ann", "cpu", "day", spec=limit)

    async def job_is_placed() -> bool:
        return all(one.status is not Status.PENDING for one in await replicas(client, "job"))

    await until("the job has the place at the site", job_is_placed, WITHIN_S)
    await client.quotas.set("group", "site", QuotaLimits(sessions=1))
    await client.endpoints.create(model("back", resource_groups=["site", "default"]))


async def let_it_be_late(dsn: str) -> None:
    """Make it look as if the replica had served elsewhere so long that, if there is room, it
    returns ``RETURNS_S`` from now."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "UPDATE sessions SET status_since = status_since - make_interval(secs => $1), "
            "ready_at = ready_at - make_interval(secs => $1) "
            "WHERE endpoint_id = (SELECT id FROM endpoints WHERE name = 'back')",
            FULL_S - RETURNS_S,
        )
    finally:
        await connection.close()


async def test_the_next_leader_carries_out_what_the_last_one_had_planned(
    daemons: Daemons, tmp_path: Path, migrated_database: str
) -> None:
    """Successors before a walltime and before ``max_lifetime_s`` ends, a retry after its backoff,
    the wake-up of a sleeping model, the end of a session whose budget is spent, and the return to a
    preferred group."""
    await daemons.start()
    async with daemons.a.client() as client:
        await plan_everything(client, daemons.a.url, tmp_path / "failed")

        async def is_planned() -> bool:
            running = [*await replicas(client, "job"), *await replicas(client, "life")]
            running.append(await client.sessions.get("paid"))
            waiting = await client.sessions.get("again")
            elsewhere = [
                one for one in await replicas(client, "back") if one.status is Status.RUNNING
            ]

            return (
                [one.status for one in running] == [Status.RUNNING] * 3
                and [one.resource_group for one in elsewhere] == ["default"]
                and waiting.status is Status.PENDING
                and waiting.not_before is not None
            )

        await until("everything waits for its time", is_planned, WITHIN_S)
        await daemons.follow()
        assert await is_planned(), "nothing was due yet"
        firsts = {name: (await replicas(client, name))[0].id for name in ("job", "life")}
        await let_it_be_late(migrated_database)

    held = asyncio.create_task(ask(daemons.edge, daemons.a.key, "asleep"))
    daemons.a.kill("manager")
    await daemons.b.wait_until_ready()

    async with daemons.b.client() as client:
        await client.quotas.set("group", "site", QuotaLimits(sessions=6))

        async def follows(name: str) -> bool:
            """The first replica ended after another one was serving."""
            found = {one.id: one.status for one in await replicas(client, name)}
            others = [status for one, status in found.items() if one != firsts[name]]
            return (
                found.get(firsts[name], Status.TERMINATED) not in LIVE and Status.RUNNING in others
            )

        async def has_ended(name: str) -> bool:
            return (await client.sessions.get(name)).status in TERMINAL

        assert await asyncio.wait_for(held, WITHIN_S) == 200, "it woke for the request that waited"
        for name in ("again", "paid"):
            await until(f"{name} has ended", lambda name=name: has_ended(name), WITHIN_S)

        done = await client.sessions.get("again")
        paid_off = await client.sessions.get("paid")
        assert (done.attempt, done.reason) == (2, Reason.EXIT_ZERO)
        assert paid_off.reason is Reason.BUDGET_EXHAUSTED
        for name in firsts:
            await until(f"{name} has a successor", lambda name=name: follows(name), 2 * WITHIN_S)

        async def has_returned() -> bool:
            found = await replicas(client, "back")
            return [one.resource_group for one in found if one.status in LIVE] == ["site"]

        await until("a replica has returned to the site", has_returned, WITHIN_S)
        job = await client.sessions.get(firsts["job"])
        ends_at = job.kernels[0].ends_at
        assert ends_at is not None
        assert job.status_since < ends_at, "not by its walltime"
