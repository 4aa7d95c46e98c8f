"""Networks of sandboxed kernels on a node reached over IPv6: who owns which sockets, and what a
kernel can reach."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moorage.agent.runtimes.process.network_rules import address6_of
from moorage.common.model.service_ports import AppPort
from tests.addresses import free_port

from .conftest import ALLOWED_PORT, Node, launch, python
from .test_kernel_networks import (
    _ECHO,
    answer_in_thread,
    ip,
    outcome_in_kernel,
    tables,
    until_logged,
)

SETTINGS = Path("/proc/sys/net/ipv6/conf")
NODE = "2001:db8:77::1"
OUTSIDE = "2001:db8:77::2"
METADATA = "fd00:ec2::254"
_NAMESPACE = "mtoutside"
_ECHO6 = _ECHO.replace(
    "socket.create_server(", "socket.create_server(family=socket.AF_INET6, address="
)
_SQUAT = """
import json, socket, sys, time
servers, outcomes = [], {}
for port in json.loads(sys.argv[1]):
    for host in ("::", "::1"):
        server = socket.socket(socket.AF_INET6)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((host, port))
        server.listen()
        servers.append(server)
        outcomes[f"{host} {port}"] = "listens"
print(json.dumps(outcomes), flush=True)
time.sleep(600)
"""


@pytest.fixture
def outside() -> Iterator[str]:
    """Another host, next to which this one has the address ``NODE``. A cloud metadata service is
    also there."""
    forwards = SETTINGS / "all" / "forwarding"
    before = forwards.read_text()
    forwards.write_text("0")
    ip("netns", "add", _NAMESPACE)
    ip("link", "add", "mtoutside0", "type", "veth", "peer", "name", "eth0", "netns", _NAMESPACE)
    ip("address", "add", f"{NODE}/64", "dev", "mtoutside0", "nodad")
    ip("link", "set", "mtoutside0", "up")
    (SETTINGS / "mtoutside0" / "accept_ra").write_text("1")
    ip("route", "add", f"{METADATA}/128", "dev", "mtoutside0")
    for address in (f"{OUTSIDE}/64", f"{METADATA}/128"):
        ip("-n", _NAMESPACE, "address", "add", address, "dev", "eth0", "nodad")

    ip("-n", _NAMESPACE, "link", "set", "eth0", "up")
    ip("-n", _NAMESPACE, "route", "add", "::/0", "via", NODE, "dev", "eth0")
    yield _NAMESPACE
    ip("link", "delete", "mtoutside0")
    ip("netns", "delete", _NAMESPACE)
    forwards.write_text(before)


@pytest.fixture
def listening(request: pytest.FixtureRequest, outside: str) -> Callable[[int], None]:
    def listen(port: int) -> None:
        enter = ["nsenter", f"--net=/run/netns/{outside}", sys.executable]
        server = subprocess.Popen([*enter, "-c", _ECHO6, "::", str(port)], stdout=subprocess.PIPE)
        request.addfinalizer(server.wait)
        request.addfinalizer(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"

    return listen


def outcome_outside(host: str, port: int) -> str:
    """The outcome of a connection from the other host."""
    program = (
        "import socket, sys\n"
        "try: print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).recv(100).decode())\n"
        "except OSError as error: print(type(error).__name__)"
    )
    enter = ["nsenter", f"--net=/run/netns/{_NAMESPACE}", sys.executable]
    argv = [*enter, "-c", program, host, str(port)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


async def test_squatter_over_ipv6_gets_no_connection(node: Node, outside: str) -> None:
    """The kernel gets no sockets of the node, on loopback or at the node's address, nor those of
    other kernels."""
    runtime = await node.start(address=NODE)
    engine = free_port()
    app = free_port()

    # A port assigned to another kernel that is not yet listening.
    await runtime.create(
        launch("sleep", "600", session="victim", port=engine, apps=(AppPort("lab", app),))
    )
    ports = [free_port() for _ in range(4)] + [ALLOWED_PORT, engine, app]
    squatter = await runtime.create(python(_SQUAT, json.dumps(ports), session="squatter"))
    await until_logged(runtime, squatter, "}")

    for port in ports:
        for host in ("::1", NODE, "127.0.0.1"):
            with pytest.raises(ConnectionRefusedError):
                await answer_in_thread(host, port)

        assert outcome_outside(NODE, port) == "ConnectionRefusedError"

    with ExitStack() as services:
        # The services start again on their ports.
        for port in ports[:5]:
            services.enter_context(socket.create_server(("::", port), family=socket.AF_INET6))

    # Nothing else can listen on a port that was assigned to a kernel.
    for host in ("::", "::1", NODE):
        with pytest.raises(OSError, match="in use"):
            socket.create_server((host, engine), family=socket.AF_INET6, reuse_port=False)


async def test_published_port_is_reached_at_the_address_of_the_node(
    node: Node, outside: str
) -> None:
    runtime = await node.start(address=NODE)
    port = free_port()
    other = free_port()
    handle = await runtime.create(python(_ECHO6, "::", str(port), port=port))
    hidden = await runtime.create(python(_ECHO6, "::", str(other)))
    for kernel in (handle, hidden):
        await until_logged(runtime, kernel, "ready")

    routes = (SETTINGS / "mtoutside0" / "accept_ra").read_text().strip()
    assert routes == "2", "a node that forwards would take no more routes from the net"
    assert await answer_in_thread(NODE, port) == "the kernel"
    assert outcome_outside(NODE, port) == "the kernel"
    for refused in ((NODE, other), ("::1", port), ("::1", other)):
        with pytest.raises(ConnectionRefusedError):
            await answer_in_thread(*refused)

    assert outcome_outside(NODE, other) == "ConnectionRefusedError"
    # Other hosts reach it only at the node's address.
    own = address6_of(address_of(node, handle.state["kernel_id"]))
    assert await answer_in_thread(own, port) == "the kernel", "the node reaches it"
    assert outcome_outside(own, port) in ("TimeoutError", "ConnectionRefusedError")

    # The rules come back, and the next agent keeps them.
    [table] = tables(node)
    subprocess.run(["nft", "delete", "table", "inet", table], check=True)
    assert (await runtime.check()).isolates
    assert outcome_outside(NODE, port) == "the kernel"
    runtime.close()
    after = await node.start(address=NODE)
    assert outcome_outside(NODE, port) == "the kernel"
    await after.destroy(handle)
    assert outcome_outside(NODE, port) == "ConnectionRefusedError"


def address_of(node: Node, kernel_id: str) -> str:
    record = node.state / "kernels" / kernel_id / "network"
    return str(json.loads(record.read_text())["address"])


async def test_kernel_reaches_other_hosts_and_no_internal_address(
    node: Node, outside: str, listening: Callable[[int], None]
) -> None:
    runtime = await node.start(address=NODE)
    port = free_port()
    service = free_port()
    listening(8080)
    victim = await runtime.create(python(_ECHO6, "::", str(port), port=port, session="victim"))
    await until_logged(runtime, victim, "ready")
    own = address6_of(address_of(node, victim.state["kernel_id"]))
    assert await outcome_in_kernel(runtime, OUTSIDE, 8080) == "the kernel"
    assert await answer_in_thread(METADATA, 8080) == "the kernel", "the node reaches it"

    with socket.create_server(("::", service), family=socket.AF_INET6, dualstack_ipv6=True):
        for host, where in (
            (METADATA, 8080), (NODE, service), ("::1", service), (own, port), (NODE, port),
        ):  # fmt: skip
            assert await outcome_in_kernel(runtime, host, where) == "ConnectionRefusedError", host
