"""A hostile agent and a hostile proxy: the manager accepts or refuses their messages, and serves
others.

Every link call is made with messages drawn from its own description, so that a new call is tested
from the start. `make soak` sends twenty times as many, and measures the memory that they leave
behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from hostile_messages import Hostile
from hypothesis import given
from hypothesis import strategies as st
from manager_harness import TOKEN, attach, manager
from structlog.testing import capture_logs
from tests.examples import examples
from tests.growth import Growth

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.common.link.pb import agent_pb2, peers_pb2, routes_pb2, routes_pb2_grpc, ssh_pb2
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.manager import Manager
from moorage.sdk import Client

__all__ = ["manager"]  # fixture
METHODS = [
    method
    for module in (agent_pb2, peers_pb2, routes_pb2, ssh_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
INNER = (agent_pb2.Observation, agent_pb2.ExecInput)
EXAMPLES = 10
GROWTH = 2 << 20
"""A leak of 1 KB per call, over the 3,200 calls of `make soak`. Running calls can account for up to
0.8 MB of difference."""

ANSWER_S = 0.3
"""How long a call may continue without being refused by the manager."""

BROKEN_BY_CLIENT = "Internal error from Core"
"""gRPC's message to a client that is still writing when its call is refused."""

TOLD = {
    "a peer claims a generation that no manager has issued: ignored",
    "unusable usage records were omitted",
    "an agent refuses its orders: sending newer ones",
}
"""Errors of a peer that appear in the log."""

FAULTS = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE}
"""How gRPC reports an exception in a servicer, and what the manager reports while its database is
away."""


@contextmanager
def running(dsn: str, home: Path) -> Iterator[tuple[asyncio.Runner, Manager]]:
    settings = ManagerSettings(dsn=dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
    with asyncio.Runner() as runner:
        manager = Manager(settings, clock=SystemClock(), link_token=TOKEN, home=home)
        runner.run(manager.__aenter__())
        try:
            yield runner, manager
        finally:
            runner.run(manager.__aexit__(None, None, None))


async def call(
    manager: Manager, method: MethodDescriptor, hostile: Hostile
) -> tuple[grpc.StatusCode, str | None]:
    """The call's status and details, or OK if it was still served after a while."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    metadata = [("authorization", f"Bearer {TOKEN}")]
    answer = GetMessageClass(method.output_type).FromString
    async with grpc.aio.insecure_channel(manager.link_address) as channel:
        made: Any
        if method.client_streaming:
            kind = channel.stream_stream if method.server_streaming else channel.stream_unary
            made = kind(path, lambda one: one.SerializeToString(), answer)(
                hostile.stream(method.input_type), metadata=metadata
            )
        else:
            kind = channel.unary_stream if method.server_streaming else channel.unary_unary
            made = kind(path, lambda one: one.SerializeToString(), answer)(
                hostile.message(method.input_type), metadata=metadata
            )

        with suppress(TimeoutError, grpc.aio.AioRpcError):
            async with asyncio.timeout(ANSWER_S):
                if method.server_streaming:
                    async for _ in made:
                        pass
                else:
                    await made

        if not made.done():
            made.cancel()
            return grpc.StatusCode.OK, None

        return await made.code(), await made.details()


async def serves_others(manager: Manager) -> None:
    """An honest agent succeeds in running its session."""
    assert manager.first_key is not None
    async with (
        Client(f"http://{manager.api_address}", manager.first_key) as client,
        attach(manager, "honest") as agent,
    ):
        made = await client.sessions.create(SessionSpec(command=["x"], resources={"cpu": 1}))
        while made.id not in {kernel.session_id for kernel in agent.orders.kernels}:
            await agent.next()

        agent.see(ObservedState.EXITED, exit_code=0)
        await agent.report()
        await agent.orders_with(0)


def test_no_message_is_a_fault_of_the_manager(migrated_database: str, tmp_path: Path) -> None:
    found: dict[str, str] = {}
    with running(migrated_database, tmp_path) as (runner, manager), capture_logs() as logs:
        runner.run(serves_others(manager))
        runner.run(asyncio.sleep(0.1))
        tasks = runner.run(_count_tasks())

        count = EXAMPLES * len(METHODS)

        @examples(count)
        @given(st.sampled_from(METHODS), st.integers(0, 1 << 32))
        def fuzz(method: MethodDescriptor, seed: int) -> None:
            status, why = runner.run(call(manager, method, Hostile(seed, INNER)))
            if status in FAULTS and why != BROKEN_BY_CLIENT:
                found[method.full_name] = f"{status} with seed {seed}: {why}"
            logs[:] = filter(_is_wrong, logs)
            growth.note_example()

        with Growth(count, allowed=GROWTH) as growth:
            fuzz()
        assert found == {}
        runner.run(asyncio.wait_for(serves_others(manager), 30))
        runner.run(asyncio.sleep(0.5))
        assert runner.run(_count_tasks()) <= tasks, "calls that have ended leave something behind"

    assert list(filter(_is_wrong, logs)) == []


def _is_wrong(line: MutableMapping[str, Any]) -> bool:
    return line["log_level"] in ("error", "critical") and line["event"] not in TOLD


async def _count_tasks() -> int:
    return len(asyncio.all_tasks())


@pytest.mark.parametrize("name", ["a\0b", "", "x" * 301])
async def test_a_name_that_cannot_be_stored_is_refused_at_once(manager: Manager, name: str) -> None:
    """It would be stored with the manager's presence, and the manager would then be considered
    gone."""
    metadata = [("authorization", f"Bearer {TOKEN}")]
    async with grpc.aio.insecure_channel(manager.link_address) as channel:
        stub = routes_pb2_grpc.RouteFeedStub(channel)  # type: ignore[no-untyped-call]
        for call in (stub.Watch, stub.WatchCredentials):
            made = call(routes_pb2.WatchRequest(proxy_id=name), metadata=metadata)
            assert await asyncio.wait_for(made.code(), 10) is grpc.StatusCode.INVALID_ARGUMENT
