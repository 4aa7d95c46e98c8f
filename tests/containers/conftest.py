"""Agents' runtimes in an engine of our own. All of these tests are marked ``docker``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from moorage.agent.runtimes import Launch
from moorage.agent.runtimes.docker import (
    ContainerRules,
    DockerRuntime,
    Engine,
    EngineUnavailable,
    ImageGarbageCollector,
    ImageGcRules,
    PulledImages,
)
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from tests.wire.agent_harness import Manager, manager

from .engine import PrivateEngine, lacks
from .images import PYTHON_IMAGE, import_python
from .node import Node, containers

MakeRuntime = Callable[..., DockerRuntime]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.docker)


def launch(*program: str, **fields: Any) -> Launch:
    """A kernel of the Python image; one word is a program's text."""
    words = ("python3", "-c", program[0]) if len(program) == 1 else program
    given: dict[str, Any] = {
        "kernel_id": KernelId(SystemClock().new_id()),
        "argv": words or ("python3", "-c", "import time; time.sleep(3600)"),
        "env": {},
        "image": PYTHON_IMAGE,
        "slots": {"mem": 128 << 20},
    }
    return Launch(**given | fields)


@pytest.fixture
def mortal_engine(docker_engine: PrivateEngine) -> Iterator[PrivateEngine]:
    """The shared engine, for tests that end it: it is there again for the next."""
    yield docker_engine
    if not docker_engine.runs:
        docker_engine.start()


@pytest.fixture(scope="module")
def plain_engine(reachable_dir: Path) -> Iterator[PrivateEngine]:
    """A second engine, as one is installed: without live-restore, and never heard of NVIDIA."""
    if reason := lacks():
        pytest.skip(reason)
    engine = PrivateEngine(reachable_dir, gpus=False, live_restore=False)
    try:
        engine.start()
        import_python(engine.socket, reachable_dir)
        yield engine
    finally:
        engine.close()


@pytest_asyncio.fixture
async def make_runtime(docker_engine: PrivateEngine, tmp_path: Path) -> AsyncIterator[MakeRuntime]:
    """Runtimes of one agent; what they leave in the shared engine is destroyed after the test."""
    made: list[DockerRuntime] = []

    def make(socket: Path = docker_engine.socket, state: Path = tmp_path, **rules: Any) -> DockerRuntime:
        state.mkdir(exist_ok=True)
        sealer = load_label_signer(state / "docker.key", SystemClock())
        logs = LogStore(state / "logs")
        engine, clock = Engine(socket), SystemClock()
        house = ImageGarbageCollector(
            engine, ImageGcRules(), PulledImages(state / "docker-images.json", clock), clock
        )
        how = {"rules": ContainerRules(**rules), "address": "127.0.0.1", "house": house}
        made.append(DockerRuntime(engine, sealer, logs, **how))
        return made[-1]

    yield make
    if not docker_engine.runs:
        docker_engine.start()
    for runtime in made:
        with contextlib.suppress(EngineUnavailable):  # of one that was made for an engine that is not there
            for handle in (await runtime.find()).values():
                await runtime.destroy(handle)
        await runtime.close()


@pytest_asyncio.fixture
async def boss() -> AsyncIterator[Manager]:
    async with manager() as made:
        yield made


@pytest_asyncio.fixture
async def node(boss: Manager, tmp_path: Path, mortal_engine: PrivateEngine) -> AsyncIterator[Node]:
    """A running agent. What it runs is ended after the test, by orders."""
    made = Node(boss, tmp_path, mortal_engine)
    boss.order()
    await made.start()
    yield made
    if not mortal_engine.runs:
        mortal_engine.start()
    await made.kill()
    boss.order()
    await made.start()
    await boss.until(lambda report: report.orders_generation == boss.generation and not report.kernels)
    await made.kill()
    assert containers(mortal_engine) == {}
