"""Hostile containers: the same attacks as root in an image, inside a real Docker Engine."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.agent.runtimes import Launch
from moorage.agent.runtimes.docker import (
    ContainerRules,
    DockerEngine,
    DockerRuntime,
    ImageGarbageCollector,
    ImageGcRules,
    PulledImages,
)
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.aio.sockets import source_address
from moorage.common.model.ids import KernelId
from tests.addresses import free_port
from tests.containers.engine import PrivateEngine
from tests.containers.images import PYTHON_IMAGE

from .conftest import HOSTILE, attack
from .hostile import SUCCEEDED

pytestmark = pytest.mark.docker
_VICTIM = "import socket, time; socket.create_server(('0.0.0.0', 4711)); time.sleep(600)"


@pytest_asyncio.fixture
async def runtime(docker_engine: PrivateEngine, installation: Path) -> AsyncIterator[DockerRuntime]:
    state = installation / "agent-one"
    clock = SystemClock()
    engine = DockerEngine(docker_engine.socket)
    image_gc = ImageGarbageCollector(
        engine, ImageGcRules(), PulledImages(state / "docker-images.json", clock), clock
    )
    runtime = DockerRuntime(
        engine,
        load_label_signer(state / "docker.key", clock),
        LogStore(state / "logs"),
        rules=ContainerRules(pids=64),
        address="127.0.0.1",
        image_gc=image_gc,
    )
    yield runtime
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)

    await runtime.close()


def launch(program: str, *arguments: str, session: str) -> Launch:
    return Launch(
        KernelId(SystemClock().new_id()),
        ("python3", "-c", program, *arguments),
        {"SECRET": "of the victim"},
        image=PYTHON_IMAGE,
        slots={"mem": 128 << 20, "cpu": 1000},
        session_id=session,
    )


_SQUATTER = """
import socket, sys, time
servers = []
for port in sys.argv[1:]:
    servers.append(socket.create_server(("0.0.0.0", int(port))))
    print(port, flush=True)
time.sleep(600)
"""


async def test_root_of_an_image_gets_no_connection_of_the_node(runtime: DockerRuntime) -> None:
    """It listens on the ports of services that are down."""
    ports = [free_port() for _ in range(3)]
    squatter = await runtime.create(launch(_SQUATTER, *map(str, ports), session="squatter"))
    async with asyncio.timeout(30):
        while str(ports[-1]) not in await runtime.log_tail(squatter):
            await asyncio.sleep(0.1)

    for port in ports:
        for host in ("127.0.0.1", source_address("192.0.2.254", 1) or "127.0.0.2"):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(host, port)


async def test_root_of_an_image_reaches_nothing(
    runtime: DockerRuntime, docker_engine: PrivateEngine, installation: Path
) -> None:
    victim = await runtime.create(launch(_VICTIM, session="victim"))
    [counters] = (await runtime.usage({KernelId("victim"): victim})).values()
    with docker_engine.api() as api:
        [container] = api.containers()
        networks = api.inspect_container(container["Id"])["NetworkSettings"]["Networks"]

    [network] = networks.values()
    with socket.create_server(("127.0.0.1", 0)) as internal:
        targets = {
            "files": [
                *(
                    str(installation / name)
                    for name in ("admin-key", "link-token", "agent-one/docker.key")
                ),
                *("/proc/kcore", str(docker_engine.folder), "/var/lib/docker"),
            ],
            "writes": [
                "/proc/sysrq-trigger",
                "/proc/sys/kernel/core_pattern",
                "/sys/fs/cgroup/cgroup.procs",
            ],
            "pids": [*counters.pids[:1], os.getpid()],
            "memory": True,
            "addresses": [
                ["127.0.0.1", internal.getsockname()[1]],
                [network["Gateway"], internal.getsockname()[1]],
                [network["IPAddress"], 4711],
                *(str(docker_engine.socket), "/var/run/docker.sock"),
            ],
        }
        outcomes = await attack(
            runtime, launch(HOSTILE.read_text(), json.dumps(targets), session="hostile")
        )

    assert {
        name: outcome for name, outcome in outcomes.items() if outcome.startswith(SUCCEEDED)
    } == {}
    assert "unavailable" in outcomes["fork without end"]
    assert outcomes["take memory"] == "OSError: killed by signal 9"
    assert outcomes["become root"] == "OSError: already the root of the image"
