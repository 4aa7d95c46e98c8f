"""A forged agent: a client with a valid certificate that sends false data to a real manager with
mTLS.

``node-1`` is honest and runs a session; ``node-2`` has joined and tries everything that its calls
allow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from manager_harness import INFO, Stream, attach
from peer_harness import Site, open_site, site

from moorage.common.config.settings import ManagerSettings
from moorage.common.link import codec
from moorage.common.link.messages import (
    HIGHEST_GENERATION,
    ExecRequest,
    LogRequest,
    Observation,
    Report,
    WorkspaceRequest,
)
from moorage.common.link.pb import agent_pb2, agent_pb2_grpc
from moorage.common.model.addresses import AddressRule
from moorage.common.model.commands import ExecSpec
from moorage.common.model.ids import AgentId
from moorage.common.model.service_ports import AppPort
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.rpc.peer_addresses import PeerAddresses, bound_host, source_of

__all__ = ["site"]  # fixture

DENIED = grpc.StatusCode.PERMISSION_DENIED
INVALID = grpc.StatusCode.INVALID_ARGUMENT
RUNNING = ObservedState.RUNNING


@dataclass
class Scene:
    site: Site
    honest: Stream
    forged: Stream

    @property
    def kernel(self) -> Any:
        [kernel] = self.honest.orders.kernels
        return kernel

    async def session(self) -> Any:
        return await self.site.client.sessions.get("victim")

    async def requested(self, kind: type) -> Any:
        """The next request of this kind that the manager sends to the honest agent."""
        while not isinstance(message := await self.honest.next(), kind):
            pass
        return message


@pytest_asyncio.fixture
async def scene(site: Site) -> AsyncIterator[Scene]:
    await site.join("node-1")
    await site.join("node-2")
    async with attach(site.manager, "node-1", dialer=site.dialer("node-1")) as honest:
        await honest.next()
        spec = SessionSpec(name="victim", type="interactive", command=["x"], resources={"cpu": 1})
        await site.client.sessions.create(spec)
        await honest.orders_with(1)
        honest.see(RUNNING)
        await honest.report()
        async with asyncio.timeout(10):
            while (await site.client.sessions.get("victim")).status is not Status.RUNNING:
                await asyncio.sleep(0.02)
        async with attach(site.manager, "node-2", dialer=site.dialer("node-2")) as forged:
            await forged.next()
            yield Scene(site, honest, forged)


async def refused(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


async def test_logs_are_taken_from_the_agent_that_was_asked(scene: Scene) -> None:
    async def read() -> bytes:
        return b"".join([piece async for piece in scene.site.client.sessions.logs("victim")])

    reading = asyncio.ensure_future(read())
    request = await scene.requested(LogRequest)

    def chunks(text: bytes) -> Any:
        return iter([agent_pb2.LogChunk(request_id=request.request_id, data=text)])

    assert await refused(scene.forged.stub.SendLogs(chunks(b"forged"))) is DENIED
    await scene.honest.stub.SendLogs(chunks(b"true"))
    assert await reading == b"true"


async def test_commands_are_answered_by_the_agent_that_was_asked(scene: Scene) -> None:
    async def execute() -> list[Any]:
        async with scene.site.client.sessions.exec(
            "victim", ExecSpec(command=["whoami"])
        ) as command:
            return [output async for output in _outputs(command)]

    running = asyncio.ensure_future(execute())
    request = await scene.requested(ExecRequest)

    # It is refused on its first message. A write during the refusal may end the call with an
    # internal error.
    forged = scene.forged.stub.Exec()
    await forged.write(agent_pb2.ExecOutput(request_id=request.request_id))
    async with asyncio.timeout(20):
        assert await forged.code() is DENIED

    honest = scene.honest.stub.Exec()
    await honest.write(agent_pb2.ExecOutput(request_id=request.request_id))
    await honest.write(agent_pb2.ExecOutput(stdout=b"true"))
    await honest.write(agent_pb2.ExecOutput(end=agent_pb2.ExecEnd(exit_code=0)))
    await honest.done_writing()
    assert await honest.code() is grpc.StatusCode.OK
    assert [data for _, data in await running] == [b"true"]


async def _outputs(command: Any) -> AsyncIterator[Any]:
    while (output := await command.read()) is not None:
        yield output


async def test_workspaces_are_listed_by_the_agent_that_was_asked(scene: Scene) -> None:
    listing = asyncio.ensure_future(scene.site.client.workspaces.list())
    request = await scene.requested(WorkspaceRequest)

    def answer(request_id: str, **fields: Any) -> agent_pb2.WorkspaceAnswer:
        workspace = agent_pb2.Workspace(session_id=scene.kernel.session_id, **fields)
        return agent_pb2.WorkspaceAnswer(request_id=request_id, workspaces=[workspace])

    assert (
        await refused(scene.forged.stub.SendWorkspaces(answer(request.request_id, size=666)))
        is DENIED
    )
    await scene.honest.stub.SendWorkspaces(answer(request.request_id, size=1))
    while not isinstance(own := await scene.forged.next(), WorkspaceRequest):
        pass

    # A value that does not fit into a timestamp would break the listing for everyone.
    for changed_at in (float("nan"), 1e300, -1.0):
        await scene.forged.stub.SendWorkspaces(
            answer(own.request_id, size=2, changed_at=changed_at)
        )

    found = await listing
    assert [(one.agent_id, one.size) for one in found.items] == [("node-1", 1)]


async def test_kernels_of_other_agents_cannot_be_reported(scene: Scene) -> None:
    kernel = scene.kernel
    stored = "SELECT status, host, port, log_tail, observed FROM kernels WHERE agent_id = 'node-1'"
    before = await scene.site.sql(stored)

    for seen in (
        Observation(kernel.kernel_id, kernel.session_id, ObservedState.EXITED, exit_code=0),
        Observation(kernel.kernel_id, kernel.session_id, ObservedState.GONE),
        Observation(
            kernel.kernel_id, kernel.session_id, RUNNING, "127.0.0.1", 22, log_tail="forged",
            apps=(AppPort("jupyter", 22, "http"),),
        ),
    ):  # fmt: skip
        scene.forged.seen[kernel.kernel_id] = seen
        await scene.forged.report()
        scene.forged.seen.clear()
        await scene.forged.report()

    usage = agent_pb2.UsageReport(agent_id="node-2", incarnation="1", kernels=[
        agent_pb2.KernelUse(kernel_id=kernel.kernel_id, use=agent_pb2.Use(cpu=1, memory=1))
    ])  # fmt: skip
    await scene.forged.stub.SendUsage(usage)
    await applied(scene)
    assert [tuple(row) for row in before] == [tuple(row) for row in await scene.site.sql(stored)]
    assert await scene.site.sql("SELECT FROM service_ports") == []
    assert await scene.site.sql("SELECT FROM kernel_usage") == []
    [allocation] = await scene.site.sql("SELECT DISTINCT released_at FROM allocations")
    assert allocation["released_at"] is None


async def applied(scene: Scene) -> None:
    """Return once the manager has applied what the forged agent has sent so far."""
    spec = SessionSpec(name="marker", command=["x"], resources={"cpu": 4})
    await scene.site.client.sessions.create(spec)
    await scene.forged.orders_with(1)


async def test_usage_is_reported_by_its_agent_and_spoils_nobody_elses(scene: Scene) -> None:
    usage = agent_pb2.UsageReport(agent_id="node-1", incarnation="1", cpu=1)
    assert await refused(scene.forged.stub.SendUsage(usage)) is DENIED

    # Text that cannot be stored would fail the statement that all reports share.
    async with asyncio.timeout(20):
        while not await scene.site.sql("SELECT FROM agent_usage WHERE agent_id = 'node-1'"):
            for name, stream in (("node-2", scene.forged), ("node-1", scene.honest)):
                incarnation = "1" if name == "node-1" else "1\0"
                await stream.stub.SendUsage(
                    agent_pb2.UsageReport(agent_id=name, incarnation=incarnation, cpu=7)
                )

            await asyncio.sleep(0.1)


async def test_a_certificate_is_good_for_one_agent(scene: Scene) -> None:
    async with scene.site.dialer("node-2").channel(()) as channel:
        call = agent_pb2_grpc.AgentLinkStub(channel).Attach()
        stolen = Stream(call, None, "node-1", "2")
        await stolen.report()
        assert await stolen.end() is DENIED
    assert (await scene.session()).status is Status.RUNNING


async def test_generations_cannot_be_used_up(scene: Scene) -> None:
    """Orders above the highest number could no longer be sent to any agent."""
    for claim in (1 << 50, HIGHEST_GENERATION - 1, HIGHEST_GENERATION):
        scene.forged.newest_generation = claim
        scene.forged.report_sender.force_full()
        await scene.forged.report(generation=claim)

    await scene.site.client.sessions.create(
        SessionSpec(name="next", command=["x"], resources={"cpu": 1})
    )
    await scene.site.client.sessions.create(
        SessionSpec(name="last", command=["x"], resources={"cpu": 1})
    )
    await scene.honest.orders_with(3)
    assert scene.honest.orders.generation < 1 << 48
    await scene.honest.report()
    [row] = await scene.site.sql("SELECT last_value FROM generations")
    assert row["last_value"] < 1 << 48


@asynccontextmanager
async def reporting(site: Site, info: Any, *kernels: Observation) -> AsyncIterator[Any]:
    """The call of a new stream of ``node-2`` with one report."""
    async with site.dialer("node-2").channel(()) as channel:
        call = agent_pb2_grpc.AgentLinkStub(channel).Attach()
        report = Report(replace(info, agent_id=AgentId("node-2")), "9", 0, kernels, stream=9 << 20)
        await call.write(codec.report_to_wire(report))
        yield call


async def test_an_agent_reports_where_it_connects_from(site: Site) -> None:
    await site.join("node-2")
    for address in (
        "169.254.169.254", "192.0.2.1", "example.invalid", "::ffff:192.0.2.1", "127.0.0.1/8", "[192.0.2.1]",
    ):  # fmt: skip
        async with reporting(site, replace(INFO, address=address)) as call:
            assert await call.code() is DENIED
            assert "manager.agent_addresses" in await call.details()
    assert await site.client.agents.list() == []


async def test_a_kernel_is_at_the_address_of_its_agent(scene: Scene) -> None:
    kernel = scene.kernel
    for host, port in (("169.254.169.254", 80), ("localhost", 80), ("192.0.2.1", 0)):
        seen = Observation(kernel.kernel_id, kernel.session_id, state=RUNNING, host=host, port=port)
        async with reporting(scene.site, INFO, seen) as call:
            assert await call.code() is DENIED
            assert "only its own address" in await call.details()

    seen = Observation(kernel.kernel_id, kernel.session_id, state=RUNNING, host="", port=80)
    async with reporting(scene.site, INFO, seen) as call:
        assert await call.code() is INVALID

    scene.honest.see(RUNNING, host="192.0.2.1", port=80)
    await scene.honest.report()  # every report is checked, not only the first
    assert await scene.honest.end() is DENIED


async def test_an_agent_may_report_what_the_administrator_allows(
    migrated_database: str, tmp_path: Path
) -> None:
    allowed = ("192.0.2.0/24", "node-2=outside.example")
    async with open_site(migrated_database, tmp_path, agent_addresses=allowed) as site:
        await site.join("node-2")
        for address in ("192.0.2.7", "outside.example", "localhost"):
            async with reporting(site, replace(INFO, address=address)) as call:
                assert await call.read() is not grpc.aio.EOF

            [agent] = await site.client.agents.list()
            assert agent.address == address


@pytest.mark.parametrize(
    ("address", "source", "resolved", "bound"),
    [
        ("192.0.2.7", "192.0.2.7", (), "192.0.2.7"),
        ("192.0.2.7", "::ffff:192.0.2.7", (), "192.0.2.7"),
        ("192.0.2.8", "192.0.2.7", (), None),
        ("2001:db8::7", "2001:db8::7", (), "2001:db8::7"),
        # Names are replaced with what they currently stand for.
        ("node-7", "192.0.2.7", ("203.0.113.9", "192.0.2.7"), "192.0.2.7"),
        ("node-7", "192.0.2.7", ("203.0.113.9",), None),
        ("rebinds", "192.0.2.7", ("127.0.0.1",), None),
        # Loopback and this host's own addresses are for agents on this host.
        ("127.0.0.1", "127.0.0.1", (), "127.0.0.1"),
        ("localhost", "::1", ("::1",), "localhost"),
        ("localhost", "192.0.2.7", ("127.0.0.1",), None),
        ("127.0.0.1", "192.0.2.1", (), "127.0.0.1"),
        ("192.0.2.1", "127.0.0.1", (), "192.0.2.1"),
        ("127.0.0.1", "192.0.2.7", (), None),
        ("127.8.8.8", "192.0.2.7", (), None),
        ("::1", "192.0.2.7", (), None),
        ("::ffff:127.0.0.1", "192.0.2.7", (), None),
        ("0.0.0.0", "192.0.2.7", (), None),
        ("192.0.2.1", "192.0.2.7", (), None),
        ("169.254.169.254", "127.0.0.1", (), None),
        ("127.0.0.1", None, (), "127.0.0.1"),
        ("", "192.0.2.7", ("",), None),
    ],
)
def test_bound_host(
    address: str, source: str | None, resolved: tuple[str, ...], bound: str | None
) -> None:
    """The manager's own address is 192.0.2.1."""
    found = bound_host(
        address,
        source_of(f"ipv6:[{source}]:40000") if source else None,
        is_allowed=False,
        is_own="192.0.2.1".__eq__,
        resolved=resolved,
    )
    assert found == bound
    assert bound_host(address, None, is_allowed=True, is_own=str, resolved=()) == address  # type: ignore[arg-type]


def test_source_of_a_connection() -> None:
    assert source_of("ipv4:192.0.2.7:40000") == ip_address("192.0.2.7")
    assert source_of("ipv6:%5B2001:db8::7%5D:40000") == ip_address("2001:db8::7")
    assert source_of("unix:/run/socket") == ip_address("127.0.0.1"), "only this host reaches it"
    assert source_of("unix:203.0.113.9:7") == ip_address("127.0.0.1"), "the client names its end"


async def test_a_name_that_cannot_be_resolved_is_refused() -> None:
    async def nothing(_: str) -> tuple[str, ...]:
        return ()

    addresses = PeerAddresses(is_own=lambda _: False, resolve=nothing)
    assert await addresses.bind("node-7", "nowhere.invalid", "ipv4:192.0.2.7:1") is None
    assert await addresses.bind("node-7", "", "ipv4:192.0.2.7:1") == ""


@pytest.mark.parametrize(
    ("rule", "allowed", "refused"),
    [
        ("198.51.100.0/24", [("a", "198.51.100.3")], [("a", "203.0.113.0"), ("a", "name")]),
        ("a=198.51.100.7", [("a", "198.51.100.7")], [("b", "198.51.100.7"), ("a", "198.51.100.8")]),
        ("a = Node-7.lab", [("a", "node-7.LAB")], [("b", "node-7.lab"), ("a", "lab")]),
        ("2001:db8::/32", [("a", "2001:db8::1")], [("a", "192.0.2.1")]),
    ],
)
def test_address_rules(
    rule: str, allowed: list[tuple[str, str]], refused: list[tuple[str, str]]
) -> None:
    parsed = AddressRule.parse(rule)
    assert all(parsed.allows(*pair) for pair in allowed)
    assert not any(parsed.allows(*pair) for pair in refused)


@pytest.mark.parametrize(
    "text", ["", "a=", "198.51.100.0/99", "198.51", "a b", "http://x", "198.51.100.7/24"]
)
def test_a_wrong_address_rule_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address, network or host name"):
        ManagerSettings(agent_addresses=(text,))
