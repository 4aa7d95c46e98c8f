"""Who reaches whom: the kernels of a cluster each other by name, and nobody else anybody.

In an engine with a firewall, as one is installed. It has a network of its own: the machine's stays as it is.
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
from .engine import PrivateEngine, lacks
from .images import import_python

ROOM = 8  # networks that the engine can make: its own, the shared one, and six
SERVE = """
import socket
with socket.create_server(("0.0.0.0", 8080)) as server:
    print("up", flush=True)
    while True:
        server.accept()[0].close()
"""
# Until it is answered, or has been told for long enough that it will not be.
REACH = """
import socket, time
until = time.monotonic() + {patience}
said = ""
while time.monotonic() < until and said != "reached":
    try:
        socket.create_connection(({target!r}, 8080), timeout=1).close()
        said = "reached"
    except OSError as error:
        said = type(error).__name__
        time.sleep(0.05)
print(said)
"""
TELL = """
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
def walled(reachable_dir: Path) -> Iterator[PrivateEngine]:
    if reason := lacks():
        pytest.skip(reason)
    engine = PrivateEngine(reachable_dir, gpus=False, live_restore=False, walled=True, networks=ROOM)
    try:
        engine.start()
        import_python(engine.socket, reachable_dir)
        yield engine
    finally:
        engine.close()


@pytest.fixture
def runtime(make_runtime: MakeRuntime, walled: PrivateEngine) -> DockerRuntime:
    return make_runtime(walled.socket)


def networks(engine: PrivateEngine) -> list[str]:
    with contextlib.closing(engine.api()) as api:
        return sorted(n["Name"] for n in api.networks() if n["Name"].startswith("moorage"))


def group() -> str:
    return SystemClock().new_id()


def member(of: str, hostname: str, program: str, **more: Any) -> Launch:
    hosts = {"main1": "127.0.0.1", "sub1": "127.0.0.1"}
    return launch(program, network=of, hostname=hostname, hosts=hosts, **more)


def reaching(target: str, patience: float = 20) -> str:
    return REACH.format(target=target, patience=patience)


async def said(runtime: Runtime, handle: Handle, within_s: float = 40) -> str:
    async with asyncio.timeout(within_s):
        while (seen := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, seen.state)
    return (await runtime.log_tail(handle)).strip()


async def address(runtime: DockerRuntime, engine: PrivateEngine, handle: Handle) -> str:
    """Of a server that is up."""
    async with asyncio.timeout(20):
        async for data in runtime.logs(handle, follow=True):
            if b"up" in data:
                break
    with contextlib.closing(engine.api()) as api:
        found = api.inspect_container(handle.state["container"])["NetworkSettings"]["Networks"]
    return str(next(iter(found.values()))["IPAddress"])


async def test_a_sub_reaches_main1_by_name_and_nobody_else_does(
    runtime: DockerRuntime, walled: PrivateEngine
) -> None:
    ours, theirs = group(), group()
    sub = await runtime.create(member(ours, "sub1", reaching("main1")))  # before there is a main1
    main = await runtime.create(member(ours, "main1", SERVE))
    assert await said(runtime, sub) == "reached"
    here = await address(runtime, walled, main)
    for target in ("main1", here):
        others = [
            member(theirs, "sub1", reaching(target, 1.5)),
            launch(reaching(target, 1.5)),
        ]
        for other in others:
            assert await said(runtime, await runtime.create(other)) in ("gaierror", "TimeoutError"), target


async def test_sessions_of_one_kernel_do_not_reach_each_other(
    runtime: DockerRuntime, walled: PrivateEngine
) -> None:
    server = await runtime.create(launch(SERVE))
    here = await address(runtime, walled, server)
    assert await said(runtime, await runtime.create(launch(reaching(here, 1.5)))) == "TimeoutError"
    assert await said(runtime, await runtime.create(member(group(), "sub1", reaching(here, 1.5)))) == (
        "TimeoutError"
    )


async def test_without_that_network_they_do(make_runtime: MakeRuntime, walled: PrivateEngine) -> None:
    """So that the test above can fail."""
    runtime = make_runtime(walled.socket, network="bridge")
    here = await address(runtime, walled, await runtime.create(launch(SERVE)))
    assert await said(runtime, await runtime.create(launch(reaching(here)))) == "reached"


async def test_a_network_goes_with_its_last_kernel(runtime: DockerRuntime, walled: PrivateEngine) -> None:
    ours = group()
    main = await runtime.create(member(ours, "main1", SERVE))
    sub = await runtime.create(member(ours, "sub1", SERVE))
    made = f"moorage-net-{ours}"
    assert made in networks(walled)
    await runtime.destroy(main)
    assert made in networks(walled)
    await runtime.destroy(sub)
    assert made not in networks(walled)
    await runtime.destroy(sub)  # again: nothing of it is there


async def test_an_agent_that_was_killed_finds_its_networks(
    make_runtime: MakeRuntime, walled: PrivateEngine, tmp_path: Path
) -> None:
    ours, gone = group(), group()
    first = make_runtime(walled.socket)
    await first.create(member(ours, "main1", SERVE))
    left = await first.create(member(gone, "main1", SERVE))
    foreign = make_runtime(walled.socket, tmp_path / "another")
    other = group()
    await foreign.create(member(other, "main1", SERVE))
    with contextlib.closing(walled.api()) as api:  # as if it died between the container and its network
        api.remove_container(left.state["container"], force=True)
    second = make_runtime(walled.socket)
    found = await second.find()
    assert {handle.state["network"] for handle in found.values()} == {f"moorage-net-{ours}"}
    left_over = networks(walled)
    assert f"moorage-net-{gone}" not in left_over
    assert f"moorage-net-{other}" in left_over, "that of another agent stays"
    for handle in found.values():
        await second.destroy(handle)
    assert f"moorage-net-{ours}" not in networks(walled)


async def test_no_more_networks_is_a_clear_refusal_that_leaves_nothing(
    runtime: DockerRuntime, walled: PrivateEngine
) -> None:
    await runtime.create(launch(SERVE))  # the shared network is there
    clusters = [member(group(), "main1", SERVE) for _ in range(ROOM - 2)]
    first, *_ = [await runtime.create(cluster) for cluster in clusters]
    one_more = member(group(), "main1", SERVE)
    with pytest.raises(CreateFailed, match="address pool") as refused:
        await runtime.create(one_more)
    assert refused.value.reason is Reason.NO_NETWORK
    assert "default-address-pools" in refused.value.next_step
    assert one_more.kernel_id not in await runtime.find()
    await runtime.destroy(first)
    await runtime.create(one_more)


async def test_the_network_of_somebody_else_is_not_used(
    runtime: DockerRuntime, walled: PrivateEngine
) -> None:
    ours = group()
    name = f"moorage-net-{ours}"
    with contextlib.closing(walled.api()) as api:
        api.create_network(name)
        try:
            with pytest.raises(CreateFailed, match="not as this agent makes it") as refused:
                await runtime.create(member(ours, "main1", SERVE))
            assert refused.value.reason is Reason.NO_NETWORK
            assert await runtime.find() == {}
            assert name in networks(walled), "it is not ours to remove"
        finally:
            api.remove_network(name)


async def test_the_shared_network_is_made_again(runtime: DockerRuntime, walled: PrivateEngine) -> None:
    handle = await runtime.create(launch("print('first')"))
    assert await said(runtime, handle) == "first"
    await runtime.destroy(handle)
    with contextlib.closing(walled.api()) as api:
        for row in api.containers(all=True):
            api.remove_container(row["Id"], force=True)
        api.remove_network(SHARED)  # docker network prune
    assert await said(runtime, await runtime.create(launch("print('second')"))) == "second"


@pytest.mark.parametrize("rules", [{}, {"user": "1234:77"}])
async def test_its_keys_are_its_users_own(
    make_runtime: MakeRuntime, walled: PrivateEngine, rules: dict[str, str]
) -> None:
    runtime = make_runtime(walled.socket, **rules)
    handle = await runtime.create(member(group(), "sub1", TELL, files=FILES))
    files, text, owner, uid, folder, hostname = json.loads(await said(runtime, handle))
    assert files == {"id_ed25519": "0o600", "id_ed25519.pub": "0o644"}
    assert (text, owner, uid) == ("secret\n", True, int(rules.get("user", "0").split(":")[0]))
    assert (folder, hostname) == ("0o700", "sub1")


async def test_on_several_nodes_only_where_the_node_says_so(
    make_runtime: MakeRuntime, walled: PrivateEngine
) -> None:
    order = replace(member("", "sub1", "import socket; print(socket.gethostbyname('main1'))"), network="")
    with pytest.raises(CreateFailed, match="docker_multi_node = off") as refused:
        await make_runtime(walled.socket).create(order)
    assert (refused.value.reason, refused.value.clean) == (Reason.NO_NETWORK, True)
    runtime = make_runtime(walled.socket, multi_node="host")
    hosts = {"main1": "localhost", "sub1": "198.51.100.7"}
    assert await said(runtime, await runtime.create(replace(order, hosts=hosts))) == "127.0.0.1"
