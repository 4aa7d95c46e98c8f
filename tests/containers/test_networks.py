"""Reachability between containers: the kernels of a cluster reach each other by name; all others
are isolated.

Uses an engine with a firewall, like an installed one, in its own network namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.agent.runtimes import CreateFailed, Handle, Launch, Runtime
from moorage.agent.runtimes.base import File
from moorage.agent.runtimes.docker import DockerRuntime
from moorage.agent.runtimes.docker.networks import SHARED
from moorage.common.aio.clock import SystemClock
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S

from .conftest import MakeRuntime, launch
from .engine import PrivateEngine, missing_requirement
from .images import import_python

MAX_NETWORKS = 8  # the engine's own, the shared one, and six clusters
SERVE = """
import socket
with socket.create_server(("0.0.0.0", 8080)) as server:
    print("up", flush=True)
    while True:
        server.accept()[0].close()
"""
# Tries to connect until it succeeds or times out.
REACH = """
import socket, time
deadline = time.monotonic() + {timeout_s}
result = ""
while time.monotonic() < deadline and result != "reached":
    try:
        socket.create_connection(({target!r}, 8080), timeout=1).close()
        result = "reached"
    except OSError as error:
        result = type(error).__name__
        time.sleep(0.05)
print(result)
"""
REPORT = """
import json, os
folder = "/etc/moorage/ssh"
files = {name: oct(os.stat(f"{folder}/{name}").st_mode & 0o777) for name in os.listdir(folder)}
text = open(f"{folder}/id_ed25519").read()
owner = os.stat(f"{folder}/id_ed25519").st_uid == os.getuid()
mode = oct(os.stat(folder).st_mode & 0o777)
print(json.dumps([files, text, owner, os.getuid(), mode, os.uname().nodename]))
"""
FILES = (
    File("/etc/moorage/ssh/id_ed25519", "secret\n", 0o600),
    File("/etc/moorage/ssh/id_ed25519.pub", "public\n", 0o644),
)


@pytest.fixture(scope="module")
def firewalled(reachable_dir: Path) -> Iterator[PrivateEngine]:
    if reason := missing_requirement():
        pytest.skip(reason)

    engine = PrivateEngine(
        reachable_dir, gpus=False, live_restore=False, firewalled=True, networks=MAX_NETWORKS
    )
    try:
        engine.start()
        import_python(engine.socket, reachable_dir)
        yield engine
    finally:
        engine.close()


@pytest.fixture
def runtime(make_runtime: MakeRuntime, firewalled: PrivateEngine) -> DockerRuntime:
    return make_runtime(firewalled.socket)


def networks(engine: PrivateEngine) -> list[str]:
    with contextlib.closing(engine.api()) as api:
        return sorted(n["Name"] for n in api.networks() if n["Name"].startswith("moorage"))


def group() -> str:
    return SystemClock().new_id()


def member(cluster: str, hostname: str, program: str, **fields: Any) -> Launch:
    hosts = {"main1": "127.0.0.1", "sub1": "127.0.0.1"}
    return launch(program, network=cluster, hostname=hostname, hosts=hosts, **fields)


def connect_to(target: str, timeout_s: float = 20) -> str:
    return REACH.format(target=target, timeout_s=timeout_s)


async def output(runtime: Runtime, handle: Handle, within_s: float = 40) -> str:
    async with asyncio.timeout(within_s):
        while (observation := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, observation.state)
    return (await runtime.log_tail(handle)).strip()


async def address(runtime: DockerRuntime, engine: PrivateEngine, handle: Handle) -> str:
    """Address of a running server."""
    async with asyncio.timeout(20):
        async for data in runtime.logs(handle, follow=True):
            if b"up" in data:
                break
    with contextlib.closing(engine.api()) as api:
        found = api.inspect_container(handle.state["container"])["NetworkSettings"]["Networks"]
    return str(next(iter(found.values()))["IPAddress"])


async def test_only_kernels_of_the_cluster_reach_main1(
    runtime: DockerRuntime, firewalled: PrivateEngine
) -> None:
    ours = group()
    theirs = group()
    sub = await runtime.create(member(ours, "sub1", connect_to("main1")))  # before there is a main1
    main = await runtime.create(member(ours, "main1", SERVE))
    assert await output(runtime, sub) == "reached"
    server_address = await address(runtime, firewalled, main)
    for target in ("main1", server_address):
        others = [
            member(theirs, "sub1", connect_to(target, 1.5)),
            launch(connect_to(target, 1.5)),
        ]
        for other in others:
            assert await output(runtime, await runtime.create(other)) in (
                "gaierror",
                "TimeoutError",
            ), target


async def test_single_kernels_cannot_reach_each_other(
    runtime: DockerRuntime, firewalled: PrivateEngine
) -> None:
    server = await runtime.create(launch(SERVE))
    server_address = await address(runtime, firewalled, server)
    assert (
        await output(runtime, await runtime.create(launch(connect_to(server_address, 1.5))))
        == "TimeoutError"
    )
    assert await output(
        runtime, await runtime.create(member(group(), "sub1", connect_to(server_address, 1.5)))
    ) == ("TimeoutError")


async def test_single_kernels_reach_each_other_on_the_default_bridge(
    make_runtime: MakeRuntime, firewalled: PrivateEngine
) -> None:
    """This proves that the test above can fail."""
    runtime = make_runtime(firewalled.socket, network="bridge")
    server_address = await address(runtime, firewalled, await runtime.create(launch(SERVE)))
    assert (
        await output(runtime, await runtime.create(launch(connect_to(server_address)))) == "reached"
    )


async def test_network_is_removed_with_its_last_kernel(
    runtime: DockerRuntime, firewalled: PrivateEngine
) -> None:
    ours = group()
    main = await runtime.create(member(ours, "main1", SERVE))
    sub = await runtime.create(member(ours, "sub1", SERVE))
    network = f"moorage-net-{ours}"
    assert network in networks(firewalled)
    await runtime.destroy(main)
    assert network in networks(firewalled)
    await runtime.destroy(sub)
    assert network not in networks(firewalled)
    await runtime.destroy(sub)  # idempotent


async def test_killed_agent_finds_and_cleans_up_its_networks(
    make_runtime: MakeRuntime, firewalled: PrivateEngine, tmp_path: Path
) -> None:
    ours = group()
    gone = group()
    first = make_runtime(firewalled.socket)
    await first.create(member(ours, "main1", SERVE))
    lost = await first.create(member(gone, "main1", SERVE))
    foreign = make_runtime(firewalled.socket, tmp_path / "another")
    other = group()
    await foreign.create(member(other, "main1", SERVE))

    # as if the agent had died before it removed the network
    with contextlib.closing(firewalled.api()) as api:
        api.remove_container(lost.state["container"], force=True)

    second = make_runtime(firewalled.socket)
    found = await second.find()
    assert {handle.state["network"] for handle in found.values()} == {f"moorage-net-{ours}"}
    remaining = networks(firewalled)
    assert f"moorage-net-{gone}" not in remaining
    assert f"moorage-net-{other}" in remaining, "the network of another agent is kept"
    for handle in found.values():
        await second.destroy(handle)

    assert f"moorage-net-{ours}" not in networks(firewalled)


async def test_exhausted_address_pool_refuses_the_kernel(
    runtime: DockerRuntime, firewalled: PrivateEngine
) -> None:
    await runtime.create(launch(SERVE))  # creates the shared network
    clusters = [member(group(), "main1", SERVE) for _ in range(MAX_NETWORKS - 2)]
    first, *_ = [await runtime.create(cluster) for cluster in clusters]
    one_more = member(group(), "main1", SERVE)
    with pytest.raises(CreateFailed, match="address pool") as caught:
        await runtime.create(one_more)

    assert caught.value.reason is Reason.NO_NETWORK
    assert "default-address-pools" in caught.value.next_step
    assert one_more.kernel_id not in await runtime.find()
    await runtime.destroy(first)
    await runtime.create(one_more)


async def test_foreign_network_is_not_used(
    runtime: DockerRuntime, firewalled: PrivateEngine
) -> None:
    ours = group()
    name = f"moorage-net-{ours}"
    with contextlib.closing(firewalled.api()) as api:
        api.create_network(name)
        try:
            with pytest.raises(CreateFailed, match="this agent did not create it") as caught:
                await runtime.create(member(ours, "main1", SERVE))

            assert caught.value.reason is Reason.NO_NETWORK
            assert await runtime.find() == {}
            assert name in networks(firewalled), "the network of somebody else is kept"
        finally:
            api.remove_network(name)


async def test_removed_shared_network_is_created_again(
    runtime: DockerRuntime, firewalled: PrivateEngine
) -> None:
    handle = await runtime.create(launch("print('first')"))
    assert await output(runtime, handle) == "first"
    await runtime.destroy(handle)

    with contextlib.closing(firewalled.api()) as api:
        for row in api.containers(all=True):
            api.remove_container(row["Id"], force=True)
        api.remove_network(SHARED)  # docker network prune

    assert await output(runtime, await runtime.create(launch("print('second')"))) == "second"


async def test_second_shared_network_is_removed(
    runtime: DockerRuntime, firewalled: PrivateEngine
) -> None:
    """The state that two agents leave when they start at the same moment."""
    await runtime.create(launch("print('first')"))
    with contextlib.closing(firewalled.api()) as api:
        [first] = [row["Id"] for row in api.networks(names=[SHARED])]
        api.create_network(SHARED, check_duplicate=False)
        assert await output(runtime, await runtime.create(launch("print('second')"))) == "second"
        assert [row["Id"] for row in api.networks(names=[SHARED])] == [first]


@pytest.mark.parametrize("rules", [{}, {"user": "1234:77"}])
async def test_key_files_belong_to_the_user_of_the_kernel(
    make_runtime: MakeRuntime, firewalled: PrivateEngine, rules: dict[str, str]
) -> None:
    runtime = make_runtime(firewalled.socket, **rules)
    handle = await runtime.create(member(group(), "sub1", REPORT, files=FILES))
    files, text, owner, uid, folder, hostname = json.loads(await output(runtime, handle))
    assert files == {"id_ed25519": "0o600", "id_ed25519.pub": "0o644"}
    assert (text, owner, uid) == ("secret\n", True, int(rules.get("user", "0").split(":")[0]))
    assert (folder, hostname) == ("0o700", "sub1")


async def test_cluster_on_several_nodes_needs_permission(
    make_runtime: MakeRuntime, firewalled: PrivateEngine
) -> None:
    order = replace(
        member("", "sub1", "import socket; print(socket.gethostbyname('main1'))"), network=""
    )
    with pytest.raises(CreateFailed, match="docker_multi_node = off") as caught:
        await make_runtime(firewalled.socket, multi_node="off").create(order)
    with pytest.raises(CreateFailed, match="no key for their network"):
        await make_runtime(firewalled.socket).create(order)

    assert (caught.value.reason, caught.value.clean) == (Reason.NO_NETWORK, True)
    runtime = make_runtime(firewalled.socket, multi_node="host")
    hosts = {"main1": "localhost", "sub1": "198.51.100.7"}
    assert await output(runtime, await runtime.create(replace(order, hosts=hosts))) == "127.0.0.1"
