"""Fixtures for tests with a private Docker Engine. All tests in this directory are marked
``docker``."""

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
    DockerEngine,
    DockerRuntime,
    EngineUnavailable,
    ImageGarbageCollector,
    ImageGcRules,
    PulledImages,
)
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from tests.wire.agent_harness import FakeManager, run_fake_manager

from .engine import PrivateEngine, missing_requirement
from .images import PYTHON_IMAGE, import_python
from .node import Node, containers

MakeRuntime = Callable[..., DockerRuntime]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.docker)
            if item.get_closest_marker("xdist_group") is None:  # each engine belongs to one module
                item.add_marker(pytest.mark.xdist_group(item.path.stem))


def launch(*program: str, **fields: Any) -> Launch:
    """A kernel with the Python image. A single argument is the source of a program."""
    argv = ("python3", "-c", program[0]) if len(program) == 1 else program
    defaults: dict[str, Any] = {
        "kernel_id": KernelId(SystemClock().new_id()),
        "argv": argv or ("python3", "-c", "import time; time.sleep(3600)"),
        "env": {},
        "image": PYTHON_IMAGE,
        "slots": {"mem": 128 << 20},
    }
    return Launch(**defaults | fields)


@pytest.fixture
def stoppable_engine(docker_engine: PrivateEngine) -> Iterator[PrivateEngine]:
    """The shared engine, for tests that stop it. It is started again after each test."""
    yield docker_engine
    if not docker_engine.is_running:
        docker_engine.start()


@pytest.fixture(scope="module")
def plain_engine(reachable_dir: Path) -> Iterator[PrivateEngine]:
    """A second engine with the default configuration: no live-restore, no NVIDIA runtime."""
    if reason := missing_requirement():
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
    """Creates runtimes for one agent. Their kernels are destroyed after the test."""
    runtimes: list[DockerRuntime] = []

    def make(
        socket: Path = docker_engine.socket, state: Path = tmp_path, **rules: Any
    ) -> DockerRuntime:
        state.mkdir(exist_ok=True)
        signer = load_label_signer(state / "docker.key", SystemClock())
        limits = ContainerRules(**rules)
        logs = LogStore(
            state / "logs", max_bytes=limits.log_max_bytes, keep_files=limits.log_keep_files
        )
        engine = DockerEngine(socket)
        clock = SystemClock()
        image_gc = ImageGarbageCollector(
            engine, ImageGcRules(), PulledImages(state / "docker-images.json", clock), clock
        )
        runtime = DockerRuntime(
            engine, signer, logs, rules=limits, address="127.0.0.1", image_gc=image_gc
        )
        runtimes.append(runtime)

        return runtime

    yield make
    if not docker_engine.is_running:
        docker_engine.start()

    for runtime in runtimes:
        with contextlib.suppress(EngineUnavailable):  # some tests use a socket without an engine
            for handle in (await runtime.find()).values():
                await runtime.destroy(handle)

        await runtime.close()


@pytest_asyncio.fixture
async def fake_manager() -> AsyncIterator[FakeManager]:
    async with run_fake_manager() as running:
        yield running


@pytest_asyncio.fixture
async def node(
    fake_manager: FakeManager, tmp_path: Path, stoppable_engine: PrivateEngine
) -> AsyncIterator[Node]:
    """A running agent. After the test, orders stop its kernels."""
    node = Node(fake_manager, tmp_path, stoppable_engine)
    fake_manager.order()
    await node.start()
    yield node
    if not stoppable_engine.is_running:
        stoppable_engine.start()

    await node.kill()
    fake_manager.order()
    await node.start()
    await fake_manager.wait_for_report(
        lambda report: report.orders_generation == fake_manager.generation and not report.kernels
    )
    await node.kill()
    assert containers(stoppable_engine) == {}
