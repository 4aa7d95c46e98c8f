"""A primary and a streaming standby, which is promoted under load, with and without losing the last
commits."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings, ManagerSettings
from moorage.common.model.errors import MoorageError
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.views.resources import SessionView
from moorage.manager import Manager
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.postgres.binaries import find_binaries, server_user
from moorage.manager.store.database.lineage import FormerPrimary
from moorage.sdk import Client
from tests.addresses import agent_ports, free_port, port_range
from tests.e2e.harness import kernels_below
from tests.store.test_read_only import promote, standby

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
TOKEN = "link-secret"
NODES = ("node-1", "node-2")
CLOCK = SystemClock()
CAUGHT_UP = (
    "SELECT count(*) > 0 AND bool_and(replay_lsn >= pg_current_wal_insert_lsn()) FROM "
    "pg_stat_replication"
)


class Pair:
    """``primary`` with its ``standby``, which listens on ``port``. ``dsn`` names both, the first
    primary first. ``key`` is the administrator's."""

    def __init__(self, home: Path, stack: AsyncExitStack) -> None:
        self.home = home
        self._stack = stack
        self.port = free_port()
        self.key = ""
        self.dsn = ""
        self.primary = EmbeddedPostgres(home / "pg", clock=CLOCK, extra={"fsync": "off"})

    async def start(self) -> None:
        binaries = find_binaries(None, server_user(), major=None).bin_dir
        if not (binaries / "pg_basebackup").exists():
            pytest.skip(
                "this Postgres has no pg_basebackup: make test-cluster installs one that has"
            )

        await self.primary.__aenter__()
        self._stack.push_async_callback(self.stop_primary)
        address = f"127.0.0.1:{self.primary.port}"
        self._stack.enter_context(standby(self.primary, binaries, self.home / "standby", self.port))
        self.dsn = self.primary.manager_dsn.replace(address, f"{address},127.0.0.1:{self.port}")
        self.second = self.primary.dsn.replace(address, f"127.0.0.1:{self.port}")

    async def stop_primary(self) -> None:
        await self.primary.__aexit__(None, None, None)

    async def manager(self, name: str, dsn: str = "") -> Manager:
        settings = ManagerSettings(
            dsn=dsn or self.dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0"
        )
        (self.home / name).mkdir(exist_ok=True)
        made = Manager(settings, clock=CLOCK, link_token=TOKEN, home=self.home / name)
        running = await self._stack.enter_async_context(made)
        self.key = running.first_key or self.key
        return running

    async def agent(self, name: str, *managers: Manager) -> None:
        settings = AgentSettings(
            id=name,
            manager=",".join(m.link_address for m in managers),
            inventory="fake:1xH100",
            port_range=port_range(agent_ports()),
            stop_kernels_on_exit=True,
        )
        await self._stack.enter_async_context(
            Agent(
                settings,
                CommonSettings(link_tls="off"),
                clock=CLOCK,
                link_token=TOKEN,
                home=self.home / name,
            )
        )
        async with asyncio.timeout(20):
            while not await self.on_primary(f"SELECT count(*) FROM agents WHERE id = '{name}'"):
                await asyncio.sleep(0.05)

    async def on_primary(self, sql: str) -> object:
        connection = await asyncpg.connect(self.primary.dsn)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    async def catch_up(self) -> None:
        async with asyncio.timeout(20):
            while not await self.on_primary(CAUGHT_UP):
                await asyncio.sleep(0.05)

    async def cut(self) -> None:
        """The standby no longer receives commits."""
        connection = await asyncpg.connect(self.second)
        await connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()
        async with asyncio.timeout(20):
            while await self.on_primary("SELECT count(*) FROM pg_stat_replication"):
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def pair(home: Path) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        made = Pair(home, stack)
        await made.start()
        yield made


def spec(name: str, command: str = "exec sleep 1000", node: str = "node-1") -> SessionSpec:
    return SessionSpec(
        name=name,
        type="batch",
        command=["sh", "-c", command],
        resources={"cpu": "0.1"},
        agents=[node],
    )


async def until(
    client: Client, name: str, condition: Callable[[SessionView], bool], within_s: float = 30
) -> float:
    """Returns the seconds that it took."""
    began = CLOCK.monotonic()
    view = None
    try:
        async with asyncio.timeout(within_s):
            while view is None or not condition(view):
                view = await client.sessions.get(name)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{name}: {view}") from None

    return CLOCK.monotonic() - began


def runs(view: SessionView) -> bool:
    return view.status is Status.RUNNING


async def test_lost_commits_are_noticed_and_mended(pair: Pair) -> None:
    manager = await pair.manager("a")
    for node in NODES:
        await pair.agent(node, manager)

    go = pair.home / "go"
    ran = pair.home / "ran"
    async with Client(f"http://{manager.api_address}", pair.key) as client:
        await client.sessions.create(spec("kept"))
        # The standby has its start, but not its end.
        await client.sessions.create(
            spec(
                "ends",
                f"echo ran >> {ran}; while [ ! -e {go} ]; do sleep 0.05; done",
                node="node-2",
            )
        )
        for name in ("kept", "ends"):
            await until(client, name, runs)

        kernel = (await client.sessions.get("kept")).kernels[-1].id
        await pair.catch_up()
        await pair.cut()
        go.touch()
        await until(client, "ends", lambda view: view.status is Status.TERMINATED)
        await client.sessions.create(spec("lost"))
        await until(client, "lost", runs)
        lost = (await client.sessions.get("lost")).kernels[-1].id
        await asyncio.sleep(1)  # the agent has removed the ended kernels
        await pair.stop_primary()
        await promote(pair.second)
        writable = CLOCK.monotonic()
        await create(client, spec("after", node="node-2"))
        await until(client, "after", runs, 5)
        print(
            f"a session runs {CLOCK.monotonic() - writable:.2f} s after the standby accepts writes"
        )
        kept = await client.sessions.get("kept")
        assert (kept.status, [k.id for k in kept.kernels]) == (Status.RUNNING, [kernel])
        await until(client, "ends", lambda view: view.status is Status.TERMINATED)
        assert ran.read_text() == "ran\n", "it has not run twice"
        assert await client.sessions.list(name="lost") == []
        agent = await client.agents.get("node-1")
        assert ([k.kernel_id for k in agent.unknown_kernels], agent.ready) == ([lost], False)
        assert {kernel, lost} <= set(kernels_below(pair.home).values())


async def test_a_lost_placement_does_not_run_twice(pair: Pair) -> None:
    """The standby knows that the sessions were created, but not that they ran: one has ended, and
    one is still running."""
    manager = await pair.manager("a")
    await pair.agent("node-1", manager)
    go = pair.home / "go"
    ran = pair.home / "ran"
    programs = {"ended": "exit 3", "runs": f"while [ ! -e {go} ]; do sleep 0.05; done"}
    async with Client(f"http://{manager.api_address}", pair.key) as client:
        await client.agents.cordon("node-1")
        for name, program in programs.items():
            await client.sessions.create(spec(name, f"echo {name} >> {ran}; {program}"))

        await pair.catch_up()
        await pair.cut()
        await client.agents.uncordon("node-1")
        await until(client, "ended", lambda view: view.status is Status.TERMINATED)
        await until(client, "runs", runs)
        kernels = {name: (await client.sessions.get(name)).kernels[-1].id for name in programs}
        await pair.stop_primary()
        await promote(pair.second)
        await create(client, spec("after"))
        await until(client, "ended", lambda view: view.status is Status.TERMINATED)
        assert (await client.sessions.get("runs")).status is Status.PENDING
        go.touch()
        await until(client, "runs", lambda view: view.status is Status.TERMINATED)
        for name, code in (("ended", 3), ("runs", 0)):
            view = await client.sessions.get(name)
            assert [(k.id, k.exit_code) for k in view.kernels] == [(kernels[name], code)]

        assert sorted(ran.read_text().split()) == ["ended", "runs"], "each has run once"
        await client.agents.uncordon("node-1")  # that was lost as well
        await until(client, "after", runs)


async def test_a_former_primary_that_comes_back_is_not_written(pair: Pair) -> None:
    """It is first in the URL, and accepts writes."""
    manager = await pair.manager("a")
    await pair.agent("node-1", manager)

    async with Client(f"http://{manager.api_address}", pair.key) as client:
        await client.sessions.create(spec("kept"))
        await until(client, "kept", runs)
        await pair.catch_up()
        await pair.stop_primary()
        await promote(pair.second)
        await create(client, spec("after"))
        await pair.primary.__aenter__()
        beats = await pair.on_primary("SELECT coalesce(sum(beat), 0) FROM managers")
        await manager.__aexit__(None, None, None)

        # One finding for the server that was already there, from its own history, and one for the
        # new server, from comparing the two.
        for name in ("a", "new"):
            again = await pair.manager(name)
            async with Client(f"http://{again.api_address}", pair.key) as other:
                assert runs(await other.sessions.get("kept"))
                assert len(await other.managers.list()) <= 2

        assert await pair.on_primary("SELECT coalesce(sum(beat), 0) FROM managers") == beats
        only = pair.dsn.replace(f",127.0.0.1:{pair.port}", "")
        (pair.home / "only").mkdir()
        shutil.copy(pair.home / "a" / "database-lineage", pair.home / "only")
        with pytest.raises(FormerPrimary):
            await pair.manager("only", only)


async def create(client: Client, session: SessionSpec) -> None:
    """Once the manager has a database."""
    async with asyncio.timeout(10):
        while True:
            try:
                await client.sessions.create(session)
                return
            except MoorageError:
                await asyncio.sleep(0.05)
