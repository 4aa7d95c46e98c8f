"""Agent identity: two agents with one id because of a misconfiguration, a cloned image or a
reinstalled node."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import manager_harness
import pytest
from manager_harness import TOKEN, attach, client, manager, until
from structlog.testing import capture_logs

from moorage.agent import Agent
from moorage.agent.kernel.checkpoint import CheckpointFiles
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.errors import StartupError
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import AgentStatus, ObservedState, Status
from moorage.manager import Manager
from moorage.sdk import Client

__all__ = ["client", "manager"]  # fixtures
SPEC = SessionSpec(name="job", type="interactive", command=["sleep", "60"], resources={"cpu": 0.1})


def twin(manager: Manager, home: Path) -> Agent:
    settings = AgentSettings(id="twin", manager=manager.link_address, inventory="fake:1xH100")
    return Agent(
        settings,
        CommonSettings(home=home, link_tls="off"),
        clock=SystemClock(),
        link_token=TOKEN,
        home=home,
    )


async def connected(client: Client, since: datetime | None = None) -> datetime:
    async with asyncio.timeout(10):
        while True:
            found = [a for a in await client.agents.list() if a.id == "twin"]
            if found and found[0].connected_since != since:
                return found[0].connected_since
            await asyncio.sleep(0.02)


async def wait_for_log(logs: list[Any], matches: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(10):
        while not (found := [e for e in logs if matches(e)]):
            await asyncio.sleep(0.02)
    return found[0]


def cause(entry: Any) -> str:
    return str(entry.get("why"))


async def test_second_agent_with_the_same_id_is_refused_without_harm(
    manager: Manager, client: Client, home: Path
) -> None:
    with capture_logs() as logs:
        async with twin(manager, home / "one"):
            since = await connected(client)
            await client.sessions.create(SPEC)
            await until(client, "job", lambda v: v.status is Status.RUNNING)

            async with twin(manager, home / "two"):
                entry = await wait_for_log(
                    logs, lambda e: "a different state directory" in cause(e)
                )
                for part in ("'twin'", "127.0.0.1", "agent.id", "moorage agents forget twin"):
                    assert part in cause(entry)

            assert await connected(client) == since
            assert (await client.sessions.get("job")).status is Status.RUNNING
            await client.sessions.stop("job")
            await until(client, "job", lambda v: v.status is Status.TERMINATED)


async def test_newer_of_two_copies_replaces_the_older_for_good(
    manager: Manager, client: Client, home: Path
) -> None:
    with capture_logs() as logs:
        async with twin(manager, home / "one"):
            first = await connected(client)
            # Files are written under a different name until they are complete.
            shutil.copytree(home / "one", home / "two", ignore=shutil.ignore_patterns("*.tmp"))
            async with twin(manager, home / "two"):
                second = await connected(client, since=first)
                entry = await wait_for_log(logs, lambda e: "has replaced this one" in cause(e))
                assert "give each a different agent.id" in cause(entry)
                await client.sessions.create(SPEC)
                await until(client, "job", lambda v: v.status is Status.RUNNING)
                assert await connected(client) == second, "the copies must not alternate"
                await client.sessions.stop("job")
                await until(client, "job", lambda v: v.status is Status.TERMINATED)

    [fenced] = [e for e in logs if e["event"].startswith("another process uses the same agent id")]
    assert "agent.id" in fenced["next_step"]


@pytest.fixture
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_harness, "GRACE_S", 2.0)


@pytest.mark.usefixtures("short_graces")
async def test_reinstalled_node_is_admitted_once_the_known_kernels_have_ended(
    manager: Manager, client: Client
) -> None:
    async with attach(manager, identity="known") as known:
        await client.sessions.create(SPEC)
        await known.orders_with(1)
        known.see(ObservedState.RUNNING)
        await known.report()
        await until(client, "job", lambda v: v.status is Status.RUNNING)
        async with attach(manager, identity="newcomer") as newcomer:
            assert await newcomer.end() is grpc.StatusCode.ALREADY_EXISTS

        assert (await client.sessions.get("job")).status is Status.RUNNING

    view = await until(client, "job", lambda v: v.status is Status.ERROR)
    assert view.reason is Reason.AGENT_LOST, "not kernel-gone, which is unknown"
    assert (await client.agents.get("node-1")).status is AgentStatus.LOST

    async with attach(manager, identity="newcomer") as newcomer:
        assert await newcomer.end() is grpc.StatusCode.ALREADY_EXISTS, (
            "the kernel may run elsewhere"
        )

    await client.agents.forget("node-1", destroyed=True)
    async with attach(manager, identity="newcomer") as newcomer:
        assert await newcomer.next() == newcomer.orders
        assert newcomer.orders.kernels == ()
        assert (await client.agents.get("node-1")).status is AgentStatus.ALIVE

        async with attach(manager, incarnation="9", identity="known") as late:
            assert await late.end() is grpc.StatusCode.ALREADY_EXISTS, (
                "the old identity is refused now"
            )


def test_identity_is_created_once(tmp_path: Path) -> None:
    clock = ManualClock()  # the second start happens at the same moment
    first = CheckpointFiles(tmp_path).record_start(clock)
    again = CheckpointFiles(tmp_path).record_start(clock)
    assert again.identity == first.identity
    assert next(again.stream_numbers()) > next(first.stream_numbers())
    assert stat.S_IMODE((tmp_path / "identity.json").stat().st_mode) == 0o600
    (tmp_path / "other").mkdir()
    assert CheckpointFiles(tmp_path / "other").record_start(clock).identity != first.identity


def test_clock_going_back_does_not_reuse_stream_numbers(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    clock = ManualClock()
    first = CheckpointFiles(tmp_path).record_start(clock)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"start": first.start + 3_600_000}))
    again = CheckpointFiles(tmp_path).record_start(clock)
    assert again.start == first.start + 3_600_001


def test_unreadable_identity_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{ not JSON")
    with pytest.raises(StartupError, match=r"identity\.json.*restore that file"):
        CheckpointFiles(tmp_path).record_start(ManualClock())
    assert (tmp_path / "identity.json").read_text() == "{ not JSON"
