"""Failures of supervised tasks: none ends silently, and each continues its work after an exception
in any of its awaits.

Every property runs its examples in one world, so that they also show that no earlier failure is
left behind.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import agent_harness as h
import asyncpg
import dialout_harness
import proxy_harness as p
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.databases import copied_postgres
from tests.examples import examples
from tests.interruption import TaskFaults

import moorage
from moorage.agent import Sites
from moorage.agent import service as agent_service
from moorage.agent import sites as agent_sites
from moorage.agent.dialout import client as dialout_client
from moorage.agent.kernel import manager as kernel_manager
from moorage.agent.kernel import probing as kernel_probing
from moorage.agent.runtimes.docker import events as docker_events
from moorage.agent.runtimes.docker.engine import DockerEngine
from moorage.common.aio import loop as loop_module
from moorage.common.aio import supervisor
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.aio.loop import Loop
from moorage.common.config.settings import CommonSettings
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.postgres import server as postgres_server
from moorage.proxy.control import feed as proxy_feed

# Supervised tasks by name, and the property that covers each.
COVERED = {
    "loop.": "test_loop",
    "kernel": "test_kernel",
    "kernel.probe": "test_readiness_probe",
    "kernels.save-generation": "test_kernel",
    "agent.link": "test_agent_link",
    "agent.dialout": "test_dialout",
    "agent.site": "test_agent_of_a_site",
    "simulate.link": "test_agent_link",  # the same client
    "proxy.feed": "test_proxy_feed",
    "proxy.save": "test_proxy_feed",
    "postgres.restart": "test_postgres_restart",
    "docker.events": "test_docker_events",
    "etcd.registration": "test_registration_goes_on",  # in tests/etcd, with a real etcd
    "etcd.settings": "test_settings_watch_goes_on",  # in tests/etcd
    # in tests/unit: one pass, without state
    "docker.exec.end": "test_finite_work_is_restarted_until_it_returns",
}


class Broken(BaseException):
    """Not an ``Exception``, like the panics of some extension modules."""


ERRORS = st.sampled_from(
    [ValueError, OSError, MemoryError, StoreUnavailable, asyncio.CancelledError, Broken]
)


def faults_at(awaits: int) -> Any:
    """Up to three faults within this many awaits."""
    return st.lists(st.tuples(st.integers(0, awaits), ERRORS), min_size=1, max_size=3)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskFaults]:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)
    installed = TaskFaults()
    for module in (
        agent_service, agent_sites, dialout_client, docker_events, kernel_manager, kernel_probing,
        loop_module, postgres_server, proxy_feed,
    ):  # fmt: skip
        installed.install(monkeypatch, module)

    installed.install_spawn(monkeypatch, proxy_feed)
    yield installed
    gc.collect()  # a coroutine that was never awaited is this test's failure, not a later one's


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


def arm(faults: TaskFaults, name: str, chosen: list[tuple[int, type[BaseException]]]) -> None:
    faults.disarm()
    for number, error in chosen:
        faults.arm(name, number, error("injected"))


async def within(seconds: float, work: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.timeout(seconds):
        return await work


def test_every_supervised_task_is_covered() -> None:
    found = set()
    for path in Path(moorage.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "SupervisedTask":
                first = node.args[0]
                part = first.values[0] if isinstance(first, ast.JoinedStr) else first
                assert isinstance(part, ast.Constant), f"{path}: a name that is known here"
                found.add(part.value)
    assert found == COVERED.keys()


def test_loop(faults: TaskFaults, runner: asyncio.Runner) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        await asyncio.sleep(0)
        ticks += 1

    async def start() -> Loop:
        return await Loop(
            "test", tick, interval_s=0.001, clock=ManualClock(), bursts=True
        ).__aenter__()

    loop = runner.run(start())

    @given(chosen=faults_at(10))
    @examples(40)
    def check(chosen: list[tuple[int, type[BaseException]]]) -> None:
        arm(faults, "loop.test", chosen)

        async def ticked() -> None:
            goal = ticks + 10
            while ticks < goal:
                await loop.ticked()

        runner.run(within(20, ticked()))

    check()
    runner.run(loop.__aexit__())
    assert faults.thrown


async def kernel_life(manager: h.FakeManager, file: Path) -> None:
    """Start a kernel, stop it, and check that it ran at most once and left nothing behind."""
    script = f"echo started >> {file}; sleep 600"
    ordered = h.kernel("sh", "-c", script, stop_grace_s=0.2)
    manager.order(ordered)
    seen = await manager.wait_for_kernel(ordered.kernel_id, S.RUNNING, S.EXITED)
    if seen.state is S.EXITED:
        assert (seen.reason, "injected" in seen.detail) == (Reason.CREATE_FAILED, True)

    orders = manager.order()
    await manager.wait_for_report(
        lambda r: (
            r.orders_generation == orders.generation and h.find_kernel(r, ordered.kernel_id) is None
        )
    )
    await h.wait_until_no_processes(ordered.kernel_id)
    assert not file.exists() or file.read_text().split() in ([], ["started"])


@pytest.mark.parametrize("name", ["kernel", "kernels.save-generation"])
def test_kernel(faults: TaskFaults, runner: asyncio.Runner, tmp_path: Path, name: str) -> None:
    stack = AsyncExitStack()
    manager = runner.run(stack.enter_async_context(h.connected_agent(tmp_path)))

    @given(chosen=faults_at(25))
    @examples(15)
    def check(chosen: list[tuple[int, type[BaseException]]]) -> None:
        arm(faults, name, chosen)
        runner.run(within(60, kernel_life(manager, tmp_path / h.CLOCK.new_id())))

    check()
    assert faults.thrown
    faults.disarm()
    runner.run(stack.aclose())


def test_agent_link(faults: TaskFaults, runner: asyncio.Runner, tmp_path: Path) -> None:
    stack = AsyncExitStack()
    manager = runner.run(stack.enter_async_context(h.connected_agent(tmp_path)))

    @given(chosen=faults_at(8))
    @examples(12)
    def check(chosen: list[tuple[int, type[BaseException]]]) -> None:
        arm(faults, "agent.link", chosen)
        runner.run(within(60, kernel_life(manager, tmp_path / h.CLOCK.new_id())))

    check()
    assert faults.thrown
    faults.disarm()
    runner.run(stack.aclose())


def test_agent_of_a_site(faults: TaskFaults, runner: asyncio.Runner, tmp_path: Path) -> None:
    stack = AsyncExitStack()
    manager = runner.run(stack.enter_async_context(h.run_fake_manager()))
    manager.order()

    async def connects(home: Path) -> None:
        home.mkdir()
        one = [h.agent_settings(manager)]
        async with Sites(
            one, CommonSettings(link_tls="off"), clock=h.CLOCK, link_token=h.TOKEN, home=home
        ) as sites:
            while not sites.running:
                await asyncio.sleep(0.01)

            await manager.wait_for_report(
                lambda report: report.orders_generation == manager.generation
            )

    @given(chosen=faults_at(12))
    @examples(6)
    def check(chosen: list[tuple[int, type[BaseException]]]) -> None:
        arm(faults, "agent.site", chosen)
        runner.run(within(60, connects(tmp_path / h.CLOCK.new_id())))

    check()
    assert faults.thrown
    faults.disarm()
    runner.run(stack.aclose())


def test_readiness_probe(faults: TaskFaults, runner: asyncio.Runner, tmp_path: Path) -> None:
    stack = AsyncExitStack()
    manager = runner.run(stack.enter_async_context(h.connected_agent(tmp_path)))
    server = (
        "import http.server as s, sys; s.test(s.SimpleHTTPRequestHandler, port=int(sys.argv[1]))"
    )

    async def becomes_ready() -> None:
        command = ("python3", "-c", server, "{port}")
        ordered = h.kernel(*command, session_type="inference", probe_path="/", stop_grace_s=0.2)
        manager.order(ordered)
        await manager.wait_for_kernel(ordered.kernel_id, S.RUNNING, timeout_s=50)
        manager.order()
        await manager.wait_for_report(lambda r: h.find_kernel(r, ordered.kernel_id) is None)

    @given(chosen=faults_at(6))
    @examples(4)
    def check(chosen: list[tuple[int, type[BaseException]]]) -> None:
        arm(faults, "kernel.probe", chosen)
        runner.run(within(60, becomes_ready()))

    check()
    assert faults.thrown
    faults.disarm()
    runner.run(stack.aclose())


@pytest.mark.parametrize("name", ["proxy.feed", "proxy.save"])
def test_proxy_feed(faults: TaskFaults, runner: asyncio.Runner, tmp_path: Path, name: str) -> None:
    stack = AsyncExitStack()
    generation = 1
    manager = runner.run(stack.enter_async_context(p.RouteServer(p.routes(generation))))
    running = runner.run(stack.enter_async_context(p.proxy(manager.address, tmp_path)))
    saved = tmp_path / "proxy-test" / "routes.json"

    async def follows() -> None:
        nonlocal generation
        generation += 1
        await manager.publish(p.routes(generation))
        await p.until(
            lambda: (
                f'"generation": {generation},' in saved.read_text() if saved.exists() else False
            ),
            50,
        )
        await p.until(lambda: running.ready)

    # one await after the other, including before a spawned call runs
    @example(chosen=[(0, ValueError)] * 6)
    @given(chosen=faults_at(6))
    @examples(15)
    def check(chosen: list[tuple[int, type[BaseException]]]) -> None:
        arm(faults, name, chosen)
        runner.run(within(60, follows()))

    check()
    assert faults.thrown
    faults.disarm()
    runner.run(stack.aclose())


def test_dialout(faults: TaskFaults, runner: asyncio.Runner, tmp_path: Path) -> None:
    async def connects() -> None:
        async with dialout_harness.site(tmp_path, connected=False) as site:
            await site.listen()
            agent = site.dial()
            while agent.connected != (site.address,):
                await asyncio.sleep(0.01)

    @given(chosen=faults_at(6))
    @examples(12)
    def check(chosen: list[tuple[int, type[BaseException]]]) -> None:
        arm(faults, "agent.dialout", chosen)
        runner.run(within(60, connects()))

    check()
    assert faults.thrown


async def answers(dsn: str) -> bool:
    try:
        connection = await asyncpg.connect(dsn, timeout=2)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    await connection.close()
    return True


def test_postgres_restart(
    faults: TaskFaults, runner: asyncio.Runner, stopped_postgres: Path, home: Path
) -> None:
    stack = AsyncExitStack()
    directory = copied_postgres(stopped_postgres, home / "pg")
    server = EmbeddedPostgres(directory, clock=SystemClock(), extra={"fsync": "off"})
    runner.run(stack.enter_async_context(server))

    async def restarts() -> None:
        while (pid := server.pid) is None:
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        while server.pid in (None, pid) or not await answers(server.dsn):
            await asyncio.sleep(0.02)

    @given(chosen=faults_at(12))
    @examples(4)
    def check(chosen: list[tuple[int, type[BaseException]]]) -> None:
        arm(faults, "postgres.restart", chosen)
        runner.run(within(60, restarts()))

    check()
    assert faults.thrown
    faults.disarm()
    runner.run(stack.aclose())


@asynccontextmanager
async def event_source(folder: Path) -> AsyncIterator[DockerEngine]:
    """An engine that reports an event of container ``c`` every few milliseconds."""
    event = b'{"id": "c"}\n'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                await writer.drain()
                await asyncio.sleep(0.005)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, folder / "docker.sock")
    engine = DockerEngine(folder / "docker.sock")
    try:
        yield engine
    finally:
        engine.close()
        server.close()


def test_docker_events(faults: TaskFaults, runner: asyncio.Runner, tmp_path: Path) -> None:
    stack = AsyncExitStack()
    engine = runner.run(stack.enter_async_context(event_source(tmp_path)))
    events = docker_events.ContainerEvents(engine, "one")

    async def reports() -> None:
        for _ in range(3):
            async with events.subscribe("c") as changed:
                await changed.wait()

    @given(chosen=faults_at(6))
    @examples(8)
    def check(chosen: list[tuple[int, type[BaseException]]]) -> None:
        arm(faults, "docker.events", chosen)
        runner.run(within(60, reports()))

    check()
    assert faults.thrown
    faults.disarm()
    runner.run(events.close())
    runner.run(stack.aclose())
