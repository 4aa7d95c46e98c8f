"""Invalid, stale and very large reports: refused with a reason, logged once, without other
effects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest
from manager_harness import TOKEN, Stream, attach, client, manager, until
from structlog.testing import capture_logs
from tests.addresses import agent_ports, port_range

from moorage.agent import Agent
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.link.messages import AgentInfo, Observation, Report, ReportDelta, SlotOffer
from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Result, Status
from moorage.manager import Manager
from moorage.manager.rpc.report_validation import find_problem
from moorage.manager.store.database import connections as database
from moorage.sdk import Client

__all__ = ["client", "manager"]  # fixtures

GOOD_ID = KernelId("01980000-0000-7000-8000-000000000001")
INFO = AgentInfo(
    AgentId("node-1"),
    "default",
    address="127.0.0.1",
    version="0.1.0",
    arch="x86_64",
    runtimes=("process",),
    engines=("custom",),
    offers=(SlotOffer("cpu", 4000),),
)
BAD = Observation(KernelId("x"), SessionId(""), ObservedState.GONE)
GOOD = Report(
    INFO, "1", 0, (Observation(GOOD_ID, SessionId("s"), ObservedState.RUNNING, "h", 21000),)
)


def with_kernel(**fields: Any) -> Report:
    return replace(GOOD, kernels=(replace(GOOD.kernels[0], **fields),))


def with_info(**fields: Any) -> Report:
    return replace(GOOD, info=replace(INFO, **fields))


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (with_kernel(kernel_id="nonsense"), "kernel_id 'nonsense'"),
        (with_kernel(kernel_id=GOOD_ID.replace("0001", "000A")), "kernel_id"),
        (with_kernel(kernel_id=""), "kernel_id ''"),
        (with_kernel(kernel_id="x" * 10_000), "…'"),
        (with_kernel(detail="a\0b"), "NUL"),
        (with_kernel(port=70_000), "port 70000"),
        (with_info(agent_id=""), "agent_id ''"),
        (with_info(agent_id="a/b"), "agent_id 'a/b'"),
        (with_info(resource_group=""), "resource_group"),
        (with_info(labels={"a": "\0"}), "NUL"),
        (with_info(offers=(SlotOffer("cpu", 1), SlotOffer("cpu", 2))), "offered 2 times"),
        (with_info(offers=(SlotOffer("cuda.device", -1, DeviceId("GPU-0")),)), "below 0"),
        (with_info(offers=(SlotOffer("cuda.device", 1, DeviceId("G"), numa=-1),)), "NUMA node -1"),
        (with_info(offers=(SlotOffer("cuda.device", 1, DeviceId("G"), nvlink_domain="a|b"),)), "device 'G'"),
        (with_info(offers=(SlotOffer("cuda.device", 1, DeviceId("G"), "H\0"),)), "NUL"),
        (with_info(share_quantum=1001), "share_quantum 1001"),
        (with_info(share_minimum=0), "share_minimum 0"),
        (with_info(max_kernels=2**31), "max_kernels 2147483648"),
        (replace(GOOD, incarnation=""), "incarnation"),
        (ReportDelta("1", 0, (BAD,), frozenset()), "kernel_id 'x'"),
    ],
)  # fmt: skip
def test_invalid_report_is_described(report: Report | ReportDelta, problem: str) -> None:
    assert problem in find_problem(report)


def test_valid_report_has_no_problem() -> None:
    assert find_problem(GOOD) == ""
    assert find_problem(replace(GOOD, kernels=())) == ""


async def test_invalid_report_ends_the_stream_with_a_reason(
    manager: Manager, client: Client
) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            async with attach(manager) as agent:
                bad = Observation(KernelId("not-an-id"), SessionId("s"), ObservedState.RUNNING)
                agent.seen["x"] = bad
                await agent.report()
                async with asyncio.timeout(10):
                    assert await agent.end() is grpc.StatusCode.INVALID_ARGUMENT

                assert "kernel_id 'not-an-id' is not a UUID" in await agent.call.details()

    refusals = [entry for entry in logs if entry["event"] == "agent refused"]
    assert 1 <= len(refusals) <= 3
    assert [entry for entry in logs if entry["log_level"] == "error"] == [], (
        "an invalid message is logged as an error of the manager"
    )
    async with attach(manager) as agent:  # the agent can reconnect
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)


async def test_report_of_a_replaced_stream_is_ignored(manager: Manager, client: Client) -> None:
    """The replaced process reports its kernel as gone, but the newer one still runs it."""
    async with attach(manager, incarnation="1") as older:
        spec = SessionSpec(name="job", type="interactive", command=["x"], resources={"cpu": 1})
        await client.sessions.create(spec)
        await older.orders_with(1)
        older.see(ObservedState.RUNNING)
        await older.report()
        await until(client, "job", lambda v: v.status is Status.RUNNING)

        async with attach_with(manager, older) as newer:
            await newer.orders_with(1)
            older.seen.clear()
            try:
                await older.report()
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
                pass  # the manager has already ended the stream

            async with asyncio.timeout(10):
                assert await older.end() is grpc.StatusCode.ALREADY_EXISTS

            assert "different agent.id" in await older.call.details()
            # A report on the newer stream, applied after all reports on the older one.
            newer.see(ObservedState.RUNNING)
            await newer.report()
            await client.sessions.create(
                SessionSpec(name="next", command=["x"], resources={"cpu": 1})
            )
            await newer.orders_with(2)
            assert (await client.sessions.get("job")).status is Status.RUNNING

            # The older process reconnects and is refused while the newer one is connected.
            async with attach(manager, incarnation="1") as again:
                async with asyncio.timeout(10):
                    assert await again.end() is grpc.StatusCode.ALREADY_EXISTS

            assert (await client.sessions.get("job")).status is Status.RUNNING


@asynccontextmanager
async def attach_with(manager: Manager, older: Stream) -> AsyncIterator[Stream]:
    """Attach a newer incarnation of the same agent, with the kernels of the older one."""
    async with grpc.aio.insecure_channel(manager.link_address) as channel:
        stub = type(older.stub)(channel)
        call = stub.Attach(metadata=[("authorization", f"Bearer {TOKEN}")])
        stream = Stream(call, stub, older.name, "2")
        stream.seen = dict(older.seen)
        await stream.report(generation=0)
        yield stream
        call.cancel()


async def test_report_of_ten_thousand_kernels(
    manager: Manager, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 10_000
    statements = 0
    fetch = database.fetch_writable

    async def counted(*args: Any) -> Any:
        nonlocal statements
        statements += 1
        return await fetch(*args)

    async with attach(manager) as agent:
        await agent.next()
        connection = await asyncpg.connect(manager.dsn)
        try:
            clock = ManualClock()
            ids = [clock.new_id() for _ in range(2 * count)]
            await connection.execute(
                "INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, "
                "created_by, owner) "
                "SELECT id, id::text, 'batch', 'RUNNING', 'default', 10, $2, '{}', 'test', 'test' "
                "FROM unnest($1::uuid[]) id",
                ids[:count], SessionSpec(command=["x"]).model_dump_json(),
            )  # fmt: skip
            await connection.execute(
                "INSERT INTO kernels (id, session_id, attempt, status, agent_id, secret) "
                "SELECT k, s, 1, 'RUNNING', 'node-1', '' FROM unnest($1::uuid[], $2::uuid[]) AS t(k, s)",
                ids[count:], ids[:count],
            )  # fmt: skip

            for kernel, session in zip(ids[count:], ids[:count], strict=True):
                agent.seen[kernel] = Observation(
                    KernelId(kernel),
                    SessionId(session),
                    ObservedState.EXITED,
                    exit_code=0,
                    reason=Reason.EXIT_ZERO,
                )

            monkeypatch.setattr(database, "fetch_writable", counted)
            await agent.report()
            ended = "SELECT count(*) FROM kernels WHERE status = 'TERMINATED'"
            async with asyncio.timeout(60):
                while await connection.fetchval(ended) < count:
                    await asyncio.sleep(0.02)
        finally:
            await connection.close()

    # Including the statements of all loops during that time. Per kernel it would take minutes.
    assert statements < count / 4, "a report is applied in a few statements"


class ClockOneHourAhead(SystemClock):
    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


async def test_wrong_clock_of_an_agent_has_no_effect(
    manager: Manager, client: Client, home: Path
) -> None:
    """Reports contain no timestamps, so the agent's clock is never compared with the manager's."""
    settings = AgentSettings(
        id="late",
        manager=manager.link_address,
        inventory="fake:1xH100",
        port_range=port_range(agent_ports()),
    )
    common = CommonSettings(home=home, link_tls="off")
    async with Agent(settings, common, clock=ClockOneHourAhead(), link_token=TOKEN, home=home):
        small = {"cpu": 0.1, "mem": "16MiB"}
        for name, command, more in (
            ("good", "exit 0", {}),
            ("slow", "sleep 60", {"timeout_s": 0.5, "stop_grace_s": 0}),
        ):
            spec = SessionSpec(
                name=name, command=["/bin/sh", "-c", command], resources=small, **more
            )  # type: ignore[arg-type]
            await client.sessions.create(spec)

        good = await until(client, "good", lambda v: v.status is Status.TERMINATED)
        slow = await until(client, "slow", lambda v: v.status is Status.TERMINATED)
        assert (good.result, slow.result, slow.reason) == (
            Result.SUCCESS,
            Result.FAILED,
            Reason.TIMEOUT,
        )
        for view in (good, slow):
            for entry in await client.sessions.history(view.name):
                assert abs((entry.at - datetime.now(UTC)).total_seconds()) < 60

        agent = await client.agents.get("late")
        assert agent.status == "ALIVE"
        assert abs((agent.last_seen - datetime.now(UTC)).total_seconds()) < 60
