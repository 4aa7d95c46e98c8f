"""Container clusters across several nodes: their encrypted network reaches all of their kernels,
and nothing else. The nodes are agents on one machine, whose WireGuard sockets are on its loopback
interface."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.kernel import overlay
from moorage.agent.runtimes import CreateFailed, Launch, wireguard
from moorage.agent.runtimes.docker import DockerRuntime
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason

from .conftest import launch
from .test_networks import SERVE, connect_to, firewalled, group, output, runtime

__all__ = ["firewalled", "runtime"]
MEMBERS = tuple(ClusterMember(name, "127.0.0.1") for name in ("main1", "sub1"))
MARK = "a word that nobody else should read"
SAY = """
import socket
with socket.create_server(("0.0.0.0", 8080)) as server:
    print("up", flush=True)
    peer, _ = server.accept()
    peer.sendall({word!r}.encode())
    peer.close()
"""
HEAR = """
import socket, time
for _ in range(100):
    try:
        print(socket.create_connection(("main1", 8080), timeout=5).recv(100).decode())
        break
    except OSError:
        time.sleep(0.1)
"""


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := wireguard.missing_requirement():
        pytest.skip(reason)


PORTS: dict[KernelId, int] = {}


def membership(cluster: KernelId, rank: int) -> ClusterMembership:
    return ClusterMembership(
        MEMBERS[rank].hostname,
        "sub" if rank else "main",
        index=max(rank, 1),
        mode="multi-node",
        group=cluster,
        members=MEMBERS,
        private_key=f"the key of {cluster}",
    )


def member(cluster: KernelId, rank: int, program: str) -> Launch:
    kernel = membership(cluster, rank)
    first_port = PORTS.setdefault(cluster, free_port())
    return launch(
        program,
        hostname=kernel.hostname,
        hosts=overlay.hosts(kernel),
        overlay=overlay.interface(kernel, first_port),
    )


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def packets_on_loopback() -> Iterator[list[bytes]]:
    """The packets that cross this machine's loopback interface."""
    seen: list[bytes] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:
        tap.bind(("lo", 0))
        tap.settimeout(0.1)
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    seen.append(tap.recv(65_536))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield seen
        finally:
            ended.set()
            reader.join()


async def test_kernels_on_several_nodes_reach_each_other_by_name(runtime: DockerRuntime) -> None:
    ours = group()
    program = connect_to("main1") + "print(socket.gethostbyname(socket.gethostname()))"
    sub = await runtime.create(member(ours, 1, program))  # before there is a main1
    await runtime.create(member(ours, 0, SERVE))
    own = overlay.hosts(membership(ours, 1))["sub1"]
    assert await output(runtime, sub) == f"reached\n{own}", (
        "its own name is its address on that network"
    )


async def test_others_do_not_reach_the_network_of_a_cluster(runtime: DockerRuntime) -> None:
    ours = group()
    theirs = group()
    await runtime.create(member(ours, 0, SERVE))
    inside = await runtime.create(member(ours, 1, connect_to("main1")))
    assert await output(runtime, inside) == "reached"
    ours_main = overlay.hosts(membership(ours, 0))["main1"]
    for other in (
        launch(connect_to(ours_main, 1.5)),
        member(theirs, 1, connect_to(ours_main, 1.5)),
    ):
        assert await output(runtime, await runtime.create(other)) in ("TimeoutError", "OSError")


async def test_wrong_key_does_not_join(runtime: DockerRuntime) -> None:
    """An attacker who knows a cluster's addresses and ports, but not its key."""
    ours = group()
    await runtime.create(member(ours, 0, SERVE))
    order = member(ours, 1, connect_to("main1", 4))
    assert order.overlay is not None
    stranger = overlay.interface(replace(membership(ours, 1), private_key="another"), 1)
    forged = replace(order.overlay, private_key=stranger.private_key)
    assert (
        await output(runtime, await runtime.create(replace(order, overlay=forged)))
        == "TimeoutError"
    )


async def test_packets_between_nodes_are_encrypted(runtime: DockerRuntime) -> None:
    ours = group()
    with packets_on_loopback() as seen:
        main = await runtime.create(member(ours, 0, SAY.format(word=MARK)))
        sub = await runtime.create(member(ours, 1, HEAR))
        assert await output(runtime, sub) == MARK

    await runtime.destroy(main)
    port = PORTS[ours].to_bytes(2, "big")
    assert [packet for packet in seen if port in packet[34:38]], (
        "the tap saw the packets of the cluster"
    )
    assert not [packet for packet in seen if MARK.encode() in packet]


async def test_interface_ends_with_its_kernel(runtime: DockerRuntime) -> None:
    before = set(interfaces())
    main = await runtime.create(member(group(), 0, SERVE))
    await runtime.destroy(main)
    async with asyncio.timeout(20):
        while set(interfaces()) - before:
            await asyncio.sleep(0.05)


async def test_taken_port_refuses_the_kernel(runtime: DockerRuntime) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("", 0))
        ours = group()
        PORTS[ours] = int(taken.getsockname()[1])
        with pytest.raises(CreateFailed, match="UDP port") as caught:
            await runtime.create(member(ours, 0, SERVE))
    assert (caught.value.reason, caught.value.clean) == (Reason.NO_NETWORK, True)
    assert await runtime.find() == {}


async def test_failed_interface_leaves_no_container(
    runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The node lacks the program for its second step."""
    for name in ("ip", "nsenter"):
        (tmp_path / name).symlink_to(
            f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/sbin/{name}"
        )

    (tmp_path / "wg").write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    (tmp_path / "wg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(CreateFailed, match="broken"):
        await runtime.create(member(group(), 0, SERVE))

    assert await runtime.find() == {}


def interfaces() -> list[str]:
    sockets = Path("/var/run/wireguard")
    return [
        *(name for _, name in socket.if_nameindex() if name.startswith("mw")),
        *(path.name for path in sockets.glob("mw*.sock")),
    ]
