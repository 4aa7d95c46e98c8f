"""Agent link and route feed of a real manager, with the test acting as agent and proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import manager_harness
import pytest
from manager_harness import INFO, TOKEN, Stream, attach, client, manager, until

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.common.link import route_codec
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import (
    FullReportRequest,
    LogRequest,
    Observation,
    Report,
)
from moorage.common.link.pb import agent_pb2, routes_pb2, routes_pb2_grpc
from moorage.common.model.errors import StartupError
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager import Manager
from moorage.manager.api.sessions import logs
from moorage.manager.rpc import agent_stream
from moorage.sdk import ApiError, Client

__all__ = ["client", "manager"]  # fixtures
ENDPOINT = EndpointSpec(
    name="m", engine="custom", command=["x"], probe=Probe(), resources={"cpu": 1}
)


async def test_session_from_creation_to_result(manager: Manager, client: Client) -> None:
    async with attach(manager) as agent:
        await client.sessions.create(
            SessionSpec(name="job", command=["true"], resources={"cpu": 2})
        )
        orders = await agent.orders_with(1)
        assert orders.kernels[0].command == ("true",)
        assert orders.kernels[0].slots == {"cpu": 2000}
        agent.see(ObservedState.CREATING)
        await agent.report()
        await until(client, "job", lambda v: v.status is Status.CREATING)
        agent.see(ObservedState.RUNNING)
        await agent.report()
        await until(client, "job", lambda v: v.status is Status.RUNNING)
        agent.see(ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
        await agent.report()
        view = await until(client, "job", lambda v: v.status is Status.TERMINATED)
        assert view.result == "SUCCESS"
        assert (await agent.orders_with(0)).kernels == ()
        assert [e.event for e in await client.sessions.history("job")] == [
            "created", "placed", "creating", "ready", "ended",
        ]  # fmt: skip
        assert (await client.agents.get("node-1")).offers[0].used == 0


async def test_newer_incarnation_replaces_the_older_stream_and_gets_its_orders(
    manager: Manager, client: Client
) -> None:
    async with attach(manager) as first:
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        before = await first.orders_with(1)
        async with attach(manager, incarnation="2") as second:
            after = await second.orders_with(1)
            assert after.kernels == before.kernels
            assert after.generation > before.generation
            async with asyncio.timeout(10):
                assert await first.end() is grpc.StatusCode.ALREADY_EXISTS


async def test_report_older_than_the_orders_does_not_end_the_kernel(
    manager: Manager, client: Client
) -> None:
    async with attach(manager) as agent:
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        orders = await agent.orders_with(1)
        await agent.report(generation=0)  # sent before the orders arrived
        agent.see(ObservedState.RUNNING)
        await agent.report()
        await until(client, "job", lambda v: v.status is Status.RUNNING)
        agent.seen.clear()
        await agent.report()  # the agent acknowledged the kernel, but no longer reports it
        view = await until(
            client, "job", lambda v: v.status is Status.TERMINATED or v.status is Status.ERROR
        )
        assert view.kernels[0].id == orders.kernels[0].kernel_id
        assert view.reason is Reason.KERNEL_GONE


async def test_agent_streams_logs_on_request(manager: Manager, client: Client) -> None:
    async with attach(manager) as agent:
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)

        async def read() -> bytes:
            return b"".join(
                [chunk async for chunk in client.sessions.logs("job", tail=3, follow=True)]
            )

        reading = asyncio.create_task(read())
        request = await agent.next()
        while not isinstance(request, LogRequest):
            request = await agent.next()

        assert (request.tail_lines, request.follow) == (3, True)

        async def chunks() -> AsyncIterator[agent_pb2.LogChunk]:
            for data in (b"one\n", b"two\n"):
                yield agent_pb2.LogChunk(request_id=request.request_id, data=data)

        await agent.stub.SendLogs(chunks(), metadata=[("authorization", f"Bearer {TOKEN}")])
        assert await asyncio.wait_for(reading, 10) == b"one\ntwo\n"


@pytest.mark.parametrize("timed", [True, False])
async def test_times_of_a_log_are_asked_of_the_agent(
    manager: Manager, client: Client, timed: bool
) -> None:
    """An agent of the previous release ignores the request for timestamps, and does not confirm
    it."""
    async with attach(manager) as agent, asyncio.timeout(60):
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)
        since = datetime(
            2026, 5, day=4, hour=12, minute=0, second=0, microsecond=250_000, tzinfo=UTC
        )

        async def read() -> bytes:
            return b"".join(
                [chunk async for chunk in client.sessions.logs("job", timestamps=True, since=since)]
            )

        reading = asyncio.create_task(read())
        while not isinstance(request := await agent.next(), LogRequest):
            pass

        assert (request.timestamps, request.since_ms) == (True, round(since.timestamp() * 1000))

        async def chunks() -> AsyncIterator[agent_pb2.LogChunk]:
            yield agent_pb2.LogChunk(request_id=request.request_id, marks_end=True, timed=timed)
            yield agent_pb2.LogChunk(request_id=request.request_id, data=b"one\n")
            yield agent_pb2.LogChunk(request_id=request.request_id, end=True)

        await agent.stub.SendLogs(chunks(), metadata=[("authorization", f"Bearer {TOKEN}")])
        if timed:
            assert await reading == b"one\n"
        else:
            with pytest.raises(ApiError, match="too old to report the times of log lines"):
                await reading


async def test_log_that_stops_without_its_end_is_read_on(manager: Manager, client: Client) -> None:
    """An agent that stops cleanly ends its calls in the same way as one whose log is complete."""
    async with attach(manager) as agent, asyncio.timeout(60):
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)

        async def read() -> bytes:
            return b"".join([chunk async for chunk in client.sessions.logs("job", follow=True)])

        async def send(*chunks: agent_pb2.LogChunk) -> None:
            while not isinstance(request := await agent.next(), LogRequest):
                pass

            async def marked() -> AsyncIterator[agent_pb2.LogChunk]:
                yield agent_pb2.LogChunk(request_id=request.request_id, marks_end=True)
                for chunk in chunks:
                    chunk.request_id = request.request_id
                    yield chunk

            await agent.stub.SendLogs(marked(), metadata=[("authorization", f"Bearer {TOKEN}")])

        reading = asyncio.ensure_future(read())
        await send(agent_pb2.LogChunk(data=b"one\n"))
        await send(agent_pb2.LogChunk(data=b"one\ntwo\n"), agent_pb2.LogChunk(end=True))
        assert await reading == b"one\ntwo\n"


async def refuse_log(agent: Stream) -> None:
    """Answer the next request like an agent that no longer has the log."""
    while not isinstance(request := await agent.next(), LogRequest):
        pass

    async def refusal() -> AsyncIterator[agent_pb2.LogChunk]:
        yield agent_pb2.LogChunk(request_id=request.request_id, marks_end=True)
        yield agent_pb2.LogChunk(request_id=request.request_id, error="this agent has no log of it")
        yield agent_pb2.LogChunk(request_id=request.request_id, end=True)

    await agent.stub.SendLogs(refusal(), metadata=[("authorization", f"Bearer {TOKEN}")])


@pytest.mark.parametrize("stored", ["", "last words\n"])
async def test_log_that_its_agent_has_no_more_is_what_was_stored_of_it(
    manager: Manager, client: Client, stored: str
) -> None:
    """Otherwise the reply states that there is no log. A followed log was once requested endlessly,
    because the answer had already begun."""
    async with attach(manager) as agent, asyncio.timeout(60):
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)
        agent.see(ObservedState.EXITED, exit_code=3, reason=Reason.EXIT_NONZERO, log_tail=stored)
        await agent.report()
        await until(client, "job", lambda v: v.status is Status.TERMINATED)

        async def read(follow: bool) -> str:
            return b"".join(
                [chunk async for chunk in client.sessions.logs("job", follow=follow)]
            ).decode()

        for follow in (False, True):
            reading = asyncio.ensure_future(read(follow))
            await refuse_log(agent)
            if stored:
                assert await reading == stored
            else:
                with pytest.raises(ApiError, match="this agent has no log of it") as refused:
                    await reading
                assert refused.value.status == 404


async def test_what_is_stored_of_a_log_is_no_rest_of_it(manager: Manager, client: Client) -> None:
    """It has no numbers, so a reading after a known byte would repeat it."""
    async with attach(manager) as agent, asyncio.timeout(60):
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)
        agent.see(
            ObservedState.EXITED, exit_code=3, reason=Reason.EXIT_NONZERO, log_tail="last words\n"
        )
        await agent.report()
        await until(client, "job", lambda v: v.status is Status.TERMINATED)
        url = client.address("/v1/sessions/job/logs", {"offset": "5"})
        reading = asyncio.ensure_future(client.http.get(url))
        await refuse_log(agent)
        async with await reading as answer:
            assert answer.status == 404


@pytest.mark.parametrize("follow", [False, True])
async def test_an_agent_that_answers_late_has_no_log(
    manager: Manager, client: Client, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    """The answer had begun by then and could only break off, so the manager was blamed, and a
    follower repeated its request endlessly."""
    monkeypatch.setattr(logs, "FIRST_CHUNK_S", 0.2)
    async with attach(manager) as agent, asyncio.timeout(60):
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)
        agent.see(ObservedState.GONE, reason=Reason.IMAGE_MISSING)
        await agent.report()
        await until(client, "job", lambda v: v.status is Status.ERROR)

        async def read() -> bytes:
            return b"".join([chunk async for chunk in client.sessions.logs("job", follow=follow)])

        reading = asyncio.ensure_future(read())
        await asyncio.wait([reading], timeout=0.5)
        await refuse_log(agent)
        with pytest.raises(ApiError, match="this agent has no log of it") as refused:
            await reading

        assert refused.value.status == 404


@pytest.mark.parametrize("follow", [False, True])
async def test_log_that_ends_without_a_byte_tells_why_its_kernel_never_ran(
    manager: Manager, client: Client, follow: bool
) -> None:
    """The log used to look empty: the reader finished as if the program had run without producing
    any output."""
    async with attach(manager) as agent, asyncio.timeout(60):
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)
        agent.see(ObservedState.GONE, reason=Reason.IMAGE_MISSING, detail="there is no image TYPO")
        await agent.report()
        await until(client, "job", lambda v: v.status is Status.ERROR)

        async def read() -> bytes:
            return b"".join([chunk async for chunk in client.sessions.logs("job", follow=follow)])

        reading = asyncio.ensure_future(read())
        await end_log(agent)
        with pytest.raises(
            ApiError, match=r"before its program ran \(ERROR: there is no image TYPO"
        ) as failed:
            await reading

        assert failed.value.status == 404


async def test_follower_of_a_kernel_that_fails_to_start_ends_with_the_cause(
    manager: Manager, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer has started by then, without any content."""
    monkeypatch.setattr(logs, "FIRST_CHUNK_S", 0.1)
    async with attach(manager) as agent, asyncio.timeout(60):
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)

        async def read() -> bytes:
            return b"".join([chunk async for chunk in client.sessions.logs("job", follow=True)])

        reading = asyncio.ensure_future(read())
        answering = asyncio.ensure_future(end_log(agent, after_s=0.5))
        await asyncio.sleep(0.3)
        agent.see(ObservedState.GONE, reason=Reason.IMAGE_MISSING, detail="there is no image TYPO")
        await agent.report()
        await answering
        await end_log(agent)
        with pytest.raises(ApiError, match="there is no image TYPO"):
            await reading


async def end_log(agent: Stream, *, after_s: float = 0.0) -> None:
    """Answer the next request with an empty log that ends after ``after_s``."""
    while not isinstance(request := await agent.next(), LogRequest):
        pass

    async def nothing() -> AsyncIterator[agent_pb2.LogChunk]:
        yield agent_pb2.LogChunk(request_id=request.request_id, marks_end=True)
        await asyncio.sleep(after_s)
        yield agent_pb2.LogChunk(request_id=request.request_id, end=True)

    await agent.stub.SendLogs(nothing(), metadata=[("authorization", f"Bearer {TOKEN}")])


async def test_interrupted_log_goes_on_for_a_slow_reader(manager: Manager, client: Client) -> None:
    async with attach(manager) as agent, asyncio.timeout(60):
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)
        log = client.sessions.logs("job", follow=True)
        first = asyncio.ensure_future(anext(log))
        while not isinstance(request := await agent.next(), LogRequest):
            pass

        call = agent.stub.SendLogs(metadata=[("authorization", f"Bearer {TOKEN}")])

        async def flood() -> None:
            while True:
                await call.write(
                    agent_pb2.LogChunk(request_id=request.request_id, data=b"x" * 65_536)
                )

        flooding = asyncio.ensure_future(flood())
        received = len(await first)
        done, _ = await asyncio.wait([flooding], timeout=2)
        assert not done, "a reader that does not read must block the log stream"
        call.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        await agent.report()

        async def rest() -> int:
            return sum([len(chunk) async for chunk in log])

        # it drains the manager's buffer, and asks again
        reading = asyncio.ensure_future(rest())
        while not isinstance(again := await agent.next(), LogRequest):
            pass

        assert again.request_id != request.request_id

        async def whole() -> AsyncIterator[agent_pb2.LogChunk]:
            for _ in range(400):
                yield agent_pb2.LogChunk(request_id=again.request_id, data=b"x" * 65_536)

        await agent.stub.SendLogs(whole(), metadata=[("authorization", f"Bearer {TOKEN}")])
        assert await reading + received == 400 * 65_536


@pytest.fixture
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_harness, "GRACE_S", 2.0)


@pytest.mark.usefixtures("short_graces")
async def test_disconnected_agent_is_lost_and_its_session_fails(
    manager: Manager, client: Client
) -> None:
    async with attach(manager) as agent:
        spec = SessionSpec(name="job", type="interactive", command=["x"], resources={"cpu": 1})
        await client.sessions.create(spec)
        await agent.orders_with(1)
        agent.see(ObservedState.RUNNING)
        await agent.report()
        await until(client, "job", lambda v: v.status is Status.RUNNING)

    view = await until(client, "job", lambda v: v.status is Status.ERROR)
    assert view.reason is Reason.AGENT_LOST
    assert (await client.agents.get("node-1")).status == "LOST"

    async with attach(manager) as agent:  # the returning agent receives empty orders
        agent.seen = {}
        assert (await agent.next()) == agent.orders
        assert agent.orders.kernels == ()


async def test_route_feed_follows_the_replicas_of_an_endpoint(
    manager: Manager, client: Client
) -> None:
    async with grpc.aio.insecure_channel(manager.link_address) as channel, attach(manager) as agent:
        stub = routes_pb2_grpc.RouteFeedStub(channel)
        request = routes_pb2.WatchRequest(proxy_id="proxy-1")
        watch = stub.Watch(request, metadata=[("authorization", f"Bearer {TOKEN}")])

        async def table_where(condition: Callable[[Any], bool]) -> Any:
            async with asyncio.timeout(10):
                while not condition(table := route_codec.routes_from_wire(await watch.read())):
                    pass
            return table

        await client.endpoints.create(ENDPOINT)
        first = await table_where(lambda t: t.models and not t.models[0].targets)
        assert len(first.keys) == 1
        orders = await agent.orders_with(1)
        assert orders.kernels[0].served_name == "m"
        agent.see(ObservedState.RUNNING, host="127.0.0.1", port=21000)
        await agent.report()
        ready = await table_where(lambda t: t.models[0].targets)
        assert ready.generation > first.generation
        target = ready.models[0].targets[0]
        assert (target.port, target.key) == (21000, orders.kernels[0].secret)
        await client.endpoints.delete("m")
        gone = await table_where(lambda t: not t.models)
        assert gone.generation > ready.generation
        assert (await agent.orders_with(0)).kernels == ()


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_invalid_link_token_is_refused(manager: Manager, token: str) -> None:
    async with attach(manager, token=token) as agent:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await agent.call.read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "link token" in str(caught.value.details())


@pytest.mark.parametrize("setting", ["listen", "link_listen"])
async def test_occupied_port_is_a_startup_error(
    manager: Manager, migrated_database: str, tmp_path: Path, setting: str
) -> None:
    occupied = {"listen": manager.api_address, "link_listen": manager.link_address}[setting]
    settings = ManagerSettings.model_validate(
        {"dsn": migrated_database, "listen": "127.0.0.1:0", "link_listen": "127.0.0.1:0"}
        | {setting: occupied}
    )
    with pytest.raises(StartupError, match=f"manager.{setting} = {occupied}"):
        async with Manager(settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path):
            pass


async def test_kernel_is_ordered_from_one_agent_only(manager: Manager, client: Client) -> None:
    async with attach(manager, "a") as one, attach(manager, "b") as two:
        for n in range(8):
            await client.sessions.create(
                SessionSpec(name=f"j{n}", command=["x"], resources={"cpu": 1})
            )

        def ordered() -> set[KernelId]:
            return {k.kernel_id for agent in (one, two) for k in agent.orders.kernels}

        # A cancelled read ends its call, so each agent has a separate reader until all orders have
        # arrived.
        async def listen(agent: Stream) -> None:
            while True:
                await agent.next()

        readers = [asyncio.create_task(listen(agent)) for agent in (one, two)]
        async with asyncio.timeout(10):
            while len(ordered()) < 8:
                await asyncio.sleep(0.02)

        for reader in readers:
            reader.cancel()

        assert not {k.kernel_id for k in one.orders.kernels} & {
            k.kernel_id for k in two.orders.kernels
        }


async def test_report_with_a_wrong_digest_is_requested_in_full(
    manager: Manager, client: Client
) -> None:
    async with attach(manager) as agent:
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)
        other = Observation(KernelId(SystemClock().new_id()), SessionId(""), ObservedState.UNKNOWN)
        agent.seen[other.kernel_id] = other
        agent.report_sender.next_message(
            Report(INFO, agent.incarnation, 0, tuple(agent.seen.values()))
        )  # lost in transit
        agent.see(ObservedState.RUNNING)
        await agent.report()
        while not isinstance(await agent.next(), FullReportRequest):
            pass

        assert (await client.sessions.get("job")).status is Status.SCHEDULED, (
            "a report that failed its digest was applied"
        )
        agent.report_sender.force_full()
        await agent.report()
        await until(client, "job", lambda v: v.status is Status.RUNNING)
        await client.sessions.create(SessionSpec(name="more", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(2)
        assert agent.deltas > 0, "no orders arrived as deltas"


async def test_generations_continue_above_what_agents_have_seen(
    manager: Manager, client: Client
) -> None:
    async with attach(manager) as agent:
        await client.sessions.create(SessionSpec(name="one", command=["x"], resources={"cpu": 1}))
        seen = (await agent.orders_with(1)).generation + 1_000_000_000
    # As after a restore: on a new stream, the agent has a higher generation than the database.
    async with attach(manager, incarnation="2", newest_generation=seen) as agent:
        assert (await agent.orders_with(1)).generation > seen
        assert (await client.agents.get("node-1")).ready
    async with attach(manager, "node-2") as other:
        await other.next()
        assert other.orders.generation > seen


async def test_routes_continue_above_what_proxies_have_seen(
    manager: Manager, client: Client
) -> None:
    dialer = Dialer(manager.link_address, token=TOKEN, clock=SystemClock())
    async with dialer.channel(()) as channel:
        stub = routes_pb2_grpc.RouteFeedStub(channel)
        seen = round(SystemClock().now().timestamp() * 1000) + 1_000_000_000
        request = routes_pb2.WatchRequest(proxy_id="p", have_generation=seen)
        async with asyncio.timeout(10):
            table = await stub.Watch(request, metadata=dialer.metadata).read()

        assert table.generation > seen


async def test_agent_of_an_earlier_release_that_refuses_orders_gets_newer_ones(
    manager: Manager, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent reports neither what it has seen nor that it refuses anything, only that it has
    applied nothing."""
    monkeypatch.setattr(agent_stream, "REFUSAL_S", 0.2)
    now_ms = round(SystemClock().now().timestamp() * 1000)
    async with attach(manager) as agent:
        await agent.next()
        assert agent.orders.generation < now_ms
        await asyncio.sleep(0.3)
        for _ in range(agent_stream.REFUSAL_DELTAS):
            await agent.report(generation=0)

        async def refusing() -> bool:
            view = await client.agents.get("node-1")
            return view.refuses_orders and not view.ready

        async with asyncio.timeout(10):
            while not await refusing():
                await asyncio.sleep(0.02)

        await agent.next()
        assert agent.orders.generation >= now_ms
        await agent.report()
        async with asyncio.timeout(10):
            while not (await client.agents.get("node-1")).ready:
                await asyncio.sleep(0.02)


async def test_agent_that_has_not_received_its_orders_does_not_refuse_them(
    manager: Manager, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all agents connect at once, orders and reports wait for a long time, and it still sends
    full reports."""
    monkeypatch.setattr(agent_stream, "REFUSAL_S", 0.2)
    now_ms = round(SystemClock().now().timestamp() * 1000)
    async with attach(manager) as agent:
        await agent.next()
        await asyncio.sleep(0.3)
        for _ in range(agent_stream.REFUSAL_DELTAS + 1):
            agent.report_sender.force_full()
            await agent.report(generation=0)

        await asyncio.sleep(0.3)
        await client.sessions.create(SessionSpec(name="one", command=["x"], resources={"cpu": 1}))
        assert (await agent.orders_with(1)).generation < now_ms, (
            "the manager overtook what nobody has seen"
        )
