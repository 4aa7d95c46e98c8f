"""Commands in sessions between a real manager, the SDK, and the test as the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import grpc
import pytest
from aiohttp import WSCloseCode, WSMsgType
from manager_harness import TOKEN, Stream, attach, client, manager, until, until_disconnected

from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import ExecRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.model.commands import Channel, CopySpec, ExecSpec
from moorage.common.model.errors import Conflict
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.common.model.status import ObservedState, SessionType, Status
from moorage.common.views.resources import SessionView
from moorage.manager import Manager
from moorage.manager.rpc.commands import CommandBroker
from moorage.sdk import ApiError, Client

__all__ = ["client", "manager"]  # fixtures
SPEC = ExecSpec(command=["tool", "-x"], stdin=True, env={"A": "b"})
Out = agent_pb2.ExecOutput


@asynccontextmanager
async def dev(manager: Manager, client: Client) -> AsyncIterator[Stream]:
    """An agent that runs the session ``dev``."""
    async with attach(manager) as agent:
        await client.sessions.create(
            SessionSpec(name="dev", type=SessionType.INTERACTIVE, resources={"cpu": 1})
        )
        await agent.orders_with(1)
        agent.see(ObservedState.RUNNING)
        await agent.report()
        await until(client, "dev", lambda v: v.status is Status.RUNNING)
        yield agent


async def accept_request(agent: Stream) -> tuple[ExecRequest, Any]:
    """The manager's request, and the call with which the agent accepts it."""
    while not isinstance(request := await agent.next(), ExecRequest):
        pass
    call = agent.stub.Exec(metadata=[("authorization", f"Bearer {TOKEN}")])
    await call.write(Out(request_id=request.request_id))
    return request, call


async def test_input_output_resize_and_exit_code(manager: Manager, client: Client) -> None:
    async with dev(manager, client) as agent, asyncio.timeout(30):
        accepting = asyncio.ensure_future(accept_request(agent))
        async with client.sessions.exec("dev", SPEC) as command:
            request, call = await accepting
            assert (request.command, request.stdin, request.tty) == (("tool", "-x"), True, False)
            assert request.env == {"A": "b"}
            assert request.kernel_id == agent.orders.kernels[0].kernel_id
            await command.send(b"\0" * 100_000)
            await command.resize(3, 4)
            await command.end_input()
            received = b""
            while (message := await call.read()).WhichOneof("what") == "stdin":
                received += message.stdin

            assert received == b"\0" * 100_000
            assert (message.size.rows, message.size.cols) == (3, 4)
            assert (await call.read()).stdin_ended

            for out in (
                Out(stdout=b"one"),
                Out(stderr=b"two"),
                Out(end=agent_pb2.ExecEnd(exit_code=-9)),
            ):
                await call.write(out)

            assert await command.read() == (Channel.STDOUT, b"one")
            assert await command.read() == (Channel.STDERR, b"two")
            assert await command.read() is None
            assert command.end is not None
            assert command.end.exit_code == -9


async def test_an_open_command_is_traffic_all_the_time(
    manager: Manager, client: Client, migrated_database: str
) -> None:
    """A silent command is traffic for idle criteria: it keeps its session alive."""
    database = await asyncpg.connect(migrated_database)
    try:
        async with dev(manager, client) as agent, asyncio.timeout(60):
            accepting = asyncio.ensure_future(accept_request(agent))
            async with client.sessions.exec("dev", SPEC):
                await accepting
                while (
                    await database.fetchval("SELECT sum(sightings) FROM session_traffic") or 0
                ) < 3:
                    await asyncio.sleep(0.1)
    finally:
        await database.close()


async def test_disconnect_of_either_end_reaches_the_other(manager: Manager, client: Client) -> None:
    async with dev(manager, client) as agent, asyncio.timeout(60):
        for _ in range(30):  # a cancelled call is detected in several ways, in any order
            accepting = asyncio.ensure_future(accept_request(agent))
            async with client.sessions.exec("dev", SPEC) as command:
                _, call = await accepting
                # A call cancelled at once may never arrive, and the manager would wait for it.
                await command.send(b"?")
                assert (await call.read()).stdin == b"?"
                call.cancel()
                assert await command.read() is None
                assert command.end is not None
                assert (command.end.exit_code, command.end.code) == (None, "agent-unreachable")

            await agent.report()

        accepting = asyncio.ensure_future(accept_request(agent))
        async with client.sessions.exec("dev", SPEC) as command:
            _, call = await accepting

        assert await call.read() is grpc.aio.EOF
        # A call for an unknown request is ended.
        stray = agent.stub.Exec(metadata=[("authorization", f"Bearer {TOKEN}")])
        await stray.write(Out(request_id="unknown"))
        assert await stray.read() is grpc.aio.EOF


async def test_slow_reader_blocks_only_its_own_command(manager: Manager, client: Client) -> None:
    async with dev(manager, client) as agent, asyncio.timeout(60):
        accepting = asyncio.ensure_future(accept_request(agent))
        async with client.sessions.exec("dev", SPEC) as command:
            _, call = await accepting
            sent = 0

            async def flood() -> None:
                nonlocal sent
                while True:
                    await call.write(Out(stdout=b"x" * 65_536))
                    sent += 65_536

            flooding = asyncio.ensure_future(flood())
            done, _ = await asyncio.wait([flooding], timeout=2)
            assert not done

            # Most of it is in the sockets' buffers; the manager buffers only a few chunks.
            assert sent < 64 << 20
            await agent.report()
            assert (await client.sessions.get("dev")).status is Status.RUNNING
            assert await command.read() is not None
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)


async def test_commands_in_unsuitable_sessions_are_refused(
    manager: Manager, client: Client
) -> None:
    async with dev(manager, client) as agent:
        waiting = SessionSpec(name="waits", command=["x"], resources={"cpu": 99})
        await client.sessions.create(waiting)
        await client.endpoints.create(
            EndpointSpec(
                name="m", engine="custom", command=["x"], probe=Probe(), resources={"cpu": 1}
            )
        )
        await agent.orders_with(2)
        [replica] = (await client.endpoints.get("m")).sessions
        for ref, status, message in (
            ("waits", 409, "it is PENDING"),
            (replica.session_id, 409, "of type inference cannot run"),
            ("nobody", 404, "no session"),
        ):
            with pytest.raises(ApiError, match=message) as refused:
                async with client.sessions.exec(ref, SPEC):
                    pass

            assert refused.value.status == status

        async with client.sessions.exec(
            "dev", SPEC.model_copy(update={"kernel": "sub1"})
        ) as command:
            assert await command.read() is None
            assert command.end is not None
            assert command.end.detail == "session 'dev' has no kernel 'sub1'; it has main1"

    await until_disconnected(client, "node-1")
    with pytest.raises(ApiError, match="not connected") as away:
        async with client.sessions.exec("dev", SPEC):
            pass

    assert away.value.status == 503


async def test_every_door_of_a_session_that_failed_names_the_cause(
    manager: Manager, client: Client
) -> None:
    """A program, code, and files, all for a session that has ended."""
    async with dev(manager, client) as agent:
        agent.see(ObservedState.GONE, reason=Reason.DISK_FULL, detail="the disk of node-1 is full")
        await agent.report()
        await until(client, "dev", lambda v: v.status is Status.ERROR)
        copy = SPEC.model_copy(update={"command": [], "files": CopySpec(direction="out", path="x")})
        for spec in (SPEC, copy):
            with pytest.raises(
                ApiError, match="it is ERROR: the disk of node-1 is full"
            ) as refused:
                async with client.sessions.exec("dev", spec):
                    pass

            assert refused.value.status == 409

        with pytest.raises(ApiError, match="it is ERROR: the disk of node-1 is full"):
            await client.executions.run("dev", "1 + 1")

        with pytest.raises(
            Conflict, match="is ERROR: the disk of node-1 is full; its files were not kept"
        ):
            manager_files(await client.sessions.get("dev"))


def manager_files(session: SessionView) -> object:
    """The requests that the proxies' SFTP servers send to the manager."""
    nothing: Any = None
    return CommandBroker(nothing, nothing, SystemClock()).open_files(session)


async def test_code_that_breaks_off_tells_why_in_the_close(
    manager: Manager, client: Client
) -> None:
    async with dev(manager, client) as agent, asyncio.timeout(30):
        url = client.address("/v1/sessions/dev/executions/r/events", {})
        opening = asyncio.ensure_future(client.http.ws_connect(url))
        request, call = await accept_request(agent)
        await call.write(Out(request_id=request.request_id, stdout=b'{"seq": 1, "item": {}}\n'))
        ws = await opening
        assert (await ws.receive()).type is WSMsgType.TEXT
        call.cancel()
        closed = await ws.receive()
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, WSCloseCode.INTERNAL_ERROR)
        assert "the connection to the session's node was lost" in closed.extra
        await ws.close()


async def test_kernel_of_a_cluster_is_selected_by_name(manager: Manager, client: Client) -> None:
    async with attach(manager) as agent, asyncio.timeout(60):
        body = {
            "name": "two",
            "type": "interactive",
            "resources": {"cpu": 1},
            "cluster": {"size": 2},
        }
        await client.sessions.create(SessionSpec.model_validate(body))
        await agent.orders_with(2)
        agent.see(ObservedState.RUNNING)
        await agent.report()
        session = await until(client, "two", lambda v: v.status is Status.RUNNING)
        kernels = {kernel.hostname: kernel.id for kernel in session.kernels}
        for spec, hostname in (
            (SPEC, "main1"),
            (SPEC.model_copy(update={"kernel": "sub1"}), "sub1"),
        ):
            accepting = asyncio.ensure_future(accept_request(agent))
            async with client.sessions.exec("two", spec):
                request, _ = await accepting
                assert request.kernel_id == kernels[hostname]


async def test_kernel_is_reachable_while_another_node_of_its_cluster_is_disconnected(
    manager: Manager, client: Client
) -> None:
    async with (
        attach(manager, "node-1") as one,
        attach(manager, "node-2") as two,
        asyncio.timeout(60),
    ):
        cluster = {"size": 2, "mode": "multi-node"}
        body = {"name": "far", "type": "interactive", "resources": {"cpu": 1}, "cluster": cluster}
        await client.sessions.create(SessionSpec.model_validate(body))
        streams = {"node-1": one, "node-2": two}
        for stream in streams.values():
            await stream.orders_with(1)
            stream.see(ObservedState.RUNNING)
            await stream.report()

        session = await until(client, "far", lambda v: v.status is Status.RUNNING)
        main, sub = sorted(session.kernels, key=lambda kernel: kernel.hostname)
        streams[str(main.agent_id)].call.cancel()
        await until_disconnected(client, str(main.agent_id))
        accepting = asyncio.ensure_future(accept_request(streams[str(sub.agent_id)]))
        async with client.sessions.exec("far", SPEC.model_copy(update={"kernel": "sub1"})):
            request, _ = await accepting
            assert request.kernel_id == sub.id

        async with client.sessions.exec("far", SPEC) as command:
            assert await command.read() is None
            assert command.end is not None
            assert f"agent '{main.agent_id}'" in command.end.detail
