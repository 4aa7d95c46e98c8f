"""Networks of sandboxed kernels: who owns which sockets, what a kernel can reach, and what remains
of it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

import pytest

from moorage.agent.kernel import overlay
from moorage.agent.runtimes import CreateFailed, Handle, ProcessRuntime, wireguard
from moorage.agent.runtimes.execution import Command
from moorage.agent.runtimes.process.isolation import IsolationRules
from moorage.agent.runtimes.process.network_rules import INTERFACES
from moorage.agent.state.logs import LogStore
from moorage.common.aio.sockets import source_address
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort
from tests.addresses import free_port

from .conftest import ALLOWED_PORT, UIDS, Node, launch, python, until_exited

_CONNECT_S = 2.0
_LISTEN = """
import json, socket, sys, time
outcomes = {}
servers = []
for port in json.loads(sys.argv[1]):
    for host in ("0.0.0.0", "127.0.0.1", "::"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            server = socket.socket(family)
            server.bind((host, port))
            server.listen()
            servers.append(server)
            outcomes[f"{host} {port}"] = "listens"
        except OSError as error:
            outcomes[f"{host} {port}"] = str(error)
        if family == socket.AF_INET and servers:
            break
print(json.dumps(outcomes), flush=True)
time.sleep(600)
"""
_ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    client = server.accept()[0]
    client.sendall(b"the kernel")
    client.close()
"""
_CONNECT = """
import socket, sys
try:
    # The networks of some machines accept connections to any address.
    print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""


async def until_logged(runtime: ProcessRuntime, handle: Handle, text: str) -> None:
    async with asyncio.timeout(20):
        while text not in await runtime.log_tail(handle):
            await asyncio.sleep(0.05)


def answer(host: str, port: int) -> str:
    """The answer of the server that listens there."""
    with socket.create_connection((host, port), _CONNECT_S) as client:
        client.settimeout(_CONNECT_S)
        return client.recv(100).decode()


async def answer_in_thread(host: str, port: int) -> str:
    return await asyncio.to_thread(answer, host, port)


def node_address() -> str:
    """An address of this machine that other hosts use, or a loopback address."""
    return source_address("192.0.2.254", 1) or "127.0.0.2"


@pytest.mark.parametrize("how", ["kernel", "exec"])
async def test_squatter_gets_no_connection_of_the_node(node: Node, how: str) -> None:
    """The kernel listens on the ports of services that are down: the manager, the proxy, Postgres,
    another engine."""
    runtime = await node.start()
    engine = free_port()
    app = free_port()

    # A port assigned to another kernel that is not yet listening.
    await runtime.create(
        launch("sleep", "600", session="victim", port=engine, apps=(AppPort("lab", app),))
    )
    ports = [free_port() for _ in range(4)] + [ALLOWED_PORT, engine, app]
    squatter = python(_LISTEN, json.dumps(ports), session="squatter")
    if how == "kernel":
        handle = await runtime.create(squatter)
        await until_logged(runtime, handle, "}")
    else:
        handle = await runtime.create(launch("sleep", "600", session="squatter"))
        command = await runtime.exec(
            handle, Command(squatter.argv, {}, tty=False, stdin=False, rows=0, cols=0)
        )
        assert await command.read() is not None

    for port in ports:
        for host in ("127.0.0.1", node_address()):
            with pytest.raises(ConnectionRefusedError):
                await answer_in_thread(host, port)

    with ExitStack() as services:
        # The services start again on their ports.
        for port in ports[:5]:
            services.enter_context(socket.create_server(("0.0.0.0", port)))

    await runtime.destroy(handle)


@pytest.mark.parametrize("listens_on", ["0.0.0.0", "127.0.0.1"])
async def test_published_port_is_reached_at_all_addresses_of_the_node(
    node: Node, listens_on: str
) -> None:
    runtime = await node.start()
    port = free_port()
    other = free_port()
    handle = await runtime.create(python(_ECHO, listens_on, str(port), port=port))
    hidden = await runtime.create(python(_ECHO, listens_on, str(other)))
    for kernel in (handle, hidden):
        await until_logged(runtime, kernel, "ready")

    for host in ("127.0.0.1", node_address()):
        assert await answer_in_thread(host, port) == "the kernel"
        with pytest.raises(ConnectionRefusedError):
            await answer_in_thread(host, other)

    # Nothing else can listen on a port while it is published, whatever happens to the rules.
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port), reuse_port=False)

    await runtime.destroy(handle)
    with pytest.raises(ConnectionRefusedError):
        await answer_in_thread("127.0.0.1", port)


async def test_next_agent_keeps_the_networks_of_its_kernels(node: Node) -> None:
    before = await node.start()
    port = free_port()
    handle = await before.create(python(_ECHO, "0.0.0.0", str(port), port=port))
    await until_logged(before, handle, "ready")
    before.close()
    assert await answer_in_thread("127.0.0.1", port) == "the kernel"
    after = await node.start()
    assert await answer_in_thread("127.0.0.1", port) == "the kernel"
    client = await after.create(python(_CONNECT, "127.0.0.1", str(port)))
    assert (await until_exited(after, client)).exit_code == 0
    assert await after.log_tail(client) == "the kernel\n"


async def test_rules_come_back(node: Node) -> None:
    runtime = await node.start()
    port = free_port()
    handle = await runtime.create(python(_ECHO, "0.0.0.0", str(port), port=port))
    await until_logged(runtime, handle, "ready")
    [table] = tables(node)
    subprocess.run(["nft", "delete", "table", "inet", table], check=True)
    with pytest.raises(ConnectionRefusedError):
        await answer_in_thread("127.0.0.1", port)

    assert (await runtime.check()).isolates
    assert await answer_in_thread("127.0.0.1", port) == "the kernel"


@pytest.mark.parametrize("address", ["::1", "fe80::1", "no-such-node.invalid"])
async def test_node_whose_address_no_kernel_can_have_refuses_members(
    tmp_path: Path, address: str
) -> None:
    logs = LogStore(tmp_path / "logs")
    rules = IsolationRules(uids=UIDS, address=address)
    runtime = ProcessRuntime(tmp_path, logs, log_max_bytes=9999, log_keep_files=1, isolation=rules)
    try:
        isolation = await runtime.probe()
        assert not isolation.isolates
        assert f"agent.address = {address}" in isolation.detail
    finally:
        runtime.close()


async def test_port_that_a_service_of_the_node_has_is_refused(node: Node) -> None:
    runtime = await node.start()
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        with pytest.raises(CreateFailed) as caught:
            await runtime.create(launch("sleep", "600", port=port))
    assert caught.value.reason is Reason.PORT_TAKEN
    assert str(port) in caught.value.message


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def bridge() -> Iterator[str]:
    """The address of a server behind a bridge of the node, like a container's."""
    name = "mtbridge"
    inside = "mtbridge-server"
    ip("netns", "add", inside)
    ip("link", "add", name, "type", "bridge")
    ip("address", "add", "198.18.7.1/24", "dev", name)
    ip("link", "set", name, "up")
    ip("link", "add", "mtbridge0", "type", "veth", "peer", "name", "eth0", "netns", inside)
    ip("link", "set", "mtbridge0", "master", name, "up")
    ip("-n", inside, "address", "add", "198.18.7.2/24", "dev", "eth0")
    ip("-n", inside, "link", "set", "eth0", "up")
    ip("-n", inside, "route", "add", "default", "via", "198.18.7.1")
    yield inside
    ip("link", "delete", name)
    ip("netns", "delete", inside)


@pytest.fixture
def metadata() -> Iterator[None]:
    """A cloud service at its link-local address, on a separate interface."""
    ip("netns", "add", "mtmetadata")
    ip("link", "add", "mtmetadata0", "type", "veth", "peer", "name", "eth0", "netns", "mtmetadata")
    ip("link", "set", "mtmetadata0", "up")
    ip("route", "add", "169.254.169.254/32", "dev", "mtmetadata0")
    ip("-n", "mtmetadata", "address", "add", "169.254.169.254/32", "dev", "eth0")
    ip("-n", "mtmetadata", "link", "set", "eth0", "up")
    ip("-n", "mtmetadata", "route", "add", "default", "dev", "eth0")
    yield
    ip("link", "delete", "mtmetadata0")
    ip("netns", "delete", "mtmetadata")


@pytest.fixture
def listening(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    def listen(namespace: str, port: int) -> None:
        enter = ["nsenter", f"--net=/run/netns/{namespace}", sys.executable]
        argv = [*enter, "-c", _ECHO, "0.0.0.0", str(port)]
        server = subprocess.Popen(argv, stdout=subprocess.PIPE)
        request.addfinalizer(server.wait)
        request.addfinalizer(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"

    return listen


async def outcome_in_kernel(runtime: ProcessRuntime, host: str, port: int) -> str:
    handle = await runtime.create(python(_CONNECT, host, str(port)))
    await until_exited(runtime, handle)
    return (await runtime.log_tail(handle)).strip()


async def test_bridges_of_the_node_are_out_of_reach(
    node: Node, bridge: str, listening: Callable[[str, int], None]
) -> None:
    runtime = await node.start()
    listening(bridge, 8080)
    assert await answer_in_thread("198.18.7.2", 8080) == "the kernel", "the node reaches it"
    assert await outcome_in_kernel(runtime, "198.18.7.2", 8080) == "ConnectionRefusedError"


async def test_metadata_of_a_cloud_is_out_of_reach(
    node: Node, metadata: None, listening: Callable[[str, int], None]
) -> None:
    runtime = await node.start()
    listening("mtmetadata", 80)
    assert await answer_in_thread("169.254.169.254", 80) == "the kernel", "the node reaches it"
    assert await outcome_in_kernel(runtime, "169.254.169.254", 80) == "ConnectionRefusedError"


async def test_other_kernels_are_out_of_reach(node: Node) -> None:
    """Connect to the kernel's address, and to its published port through any address of the
    node."""
    runtime = await node.start()
    port = free_port()
    victim = await runtime.create(python(_ECHO, "0.0.0.0", str(port), port=port, session="victim"))
    await until_logged(runtime, victim, "ready")
    folder = node.state / "kernels" / victim.state["kernel_id"]
    address = json.loads((folder / "network").read_text())["address"]
    assert await answer_in_thread(address, port) == "the kernel", "the node reaches it"
    assert await outcome_in_kernel(runtime, address, port) == "ConnectionRefusedError"
    assert await outcome_in_kernel(runtime, node_address(), port) == "ConnectionRefusedError"
    assert await outcome_in_kernel(runtime, "127.0.0.1", port) == "ConnectionRefusedError"


async def test_abstract_sockets_of_the_node_are_out_of_reach(node: Node) -> None:
    runtime = await node.start()
    program = (
        "import socket\n"
        "try: socket.socket(socket.AF_UNIX).connect('\\0moorage-test-abstract'); print('connected')\n"
        "except OSError as error: print(type(error).__name__)"
    )
    with socket.socket(socket.AF_UNIX) as service:
        service.bind("\0moorage-test-abstract")
        service.listen()
        handle = await runtime.create(python(program))
        await until_exited(runtime, handle)

    assert await runtime.log_tail(handle) == "ConnectionRefusedError\n"


def name_of(node: Node) -> str:
    """All its networks have this prefix. Other agents on this machine have different ones."""
    return f"{crc32(os.fsencode(node.state.resolve())):08x}"


def tables(node: Node) -> list[str]:
    listed = subprocess.run(["nft", "list", "tables"], check=True, capture_output=True, text=True)
    return [line.split()[-1] for line in listed.stdout.splitlines() if name_of(node) in line]


def interfaces(node: Node) -> set[str]:
    return {path.name for path in Path("/sys/class/net").glob(f"{INTERFACES}{name_of(node)}*")}


def namespaces(node: Node) -> set[str]:
    return {path.name for path in Path("/run/netns").glob(f"moorage-{name_of(node)}-*")}


async def test_nothing_of_a_network_remains(node: Node) -> None:
    runtime = await node.start()
    handles = [
        await runtime.create(launch("sleep", "600", session=name)) for name in ("a", "a", "b")
    ]
    assert len(interfaces(node)) >= 2
    for handle in handles:
        await runtime.destroy(handle)
    runtime.close()
    assert (interfaces(node), namespaces(node), tables(node)) == (set(), set(), [])


async def test_networks_that_a_killed_agent_left_are_removed(node: Node) -> None:
    killed = await node.start()
    handle = await killed.create(launch("sleep", "600"))
    async with asyncio.timeout(20):
        while len(namespaces(node)) < 4:
            await asyncio.sleep(0.05)

    await killed.destroy(handle)
    assert len(namespaces(node)) >= 3
    after = await node.start()
    after.close()
    assert namespaces(node) == set()
    killed.close()


@pytest.mark.skipif(bool(wireguard.missing_requirement()), reason="no WireGuard on this machine")
async def test_cluster_over_several_nodes_has_a_network_of_its_own(
    node: Node, tmp_path: Path
) -> None:
    """On any port, and for no other kernel."""
    second = Node(tmp_path / "second")
    nodes = await node.start(), await second.start(uids=range(UIDS[-1] + 1, UIDS[-1] + 100))
    members = ClusterMember("main1", "127.0.0.1"), ClusterMember("sub1", "127.0.0.1")
    group = KernelId("cluster-of-two")
    key = "PRIVATE KEY"
    ranks = [
        ClusterMembership(
            name,
            role,
            index=rank,
            mode="multi-node",
            group=group,
            members=members,
            private_key=key,
            public_key="ssh-ed25519 AAAA",
        )
        for rank, (name, role) in enumerate((("main1", "main"), ("sub1", "sub")))
    ]
    fields = [
        {"hosts": overlay.hosts(rank), "overlay": overlay.interface(rank, 25_000)} for rank in ranks
    ]
    port = free_port()
    try:
        main = await nodes[0].create(
            python(_ECHO, "0.0.0.0", str(port), session="two", **fields[0])
        )
        await until_logged(nodes[0], main, "ready")
        sub = await nodes[1].create(
            python(_CONNECT, "main1", str(port), session="two", **fields[1])
        )
        await until_exited(nodes[1], sub)
        assert await nodes[1].log_tail(sub) == "the kernel\n"
        address = fields[0]["hosts"]["main1"]
        other = await nodes[1].create(python(_CONNECT, address, str(port), session="other"))
        await until_exited(nodes[1], other)
        assert await nodes[1].log_tail(other) != "the kernel\n"
    finally:
        await second.close()


async def test_cluster_over_several_nodes_without_a_key_is_refused(node: Node) -> None:
    runtime = await node.start()
    with pytest.raises(CreateFailed, match="no key") as caught:
        await runtime.create(launch("true", hosts={"main1": "192.0.2.1", "sub1": "192.0.2.2"}))
    assert (caught.value.reason, caught.value.clean) == (Reason.NO_NETWORK, True)
