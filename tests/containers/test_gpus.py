"""Container GPUs through the Container Device Interface, with a real engine. The tests create the
device nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from moorage.agent.runtimes import CreateFailed, Launch, Runtime
from moorage.agent.runtimes.base import DevicePlace
from moorage.common.model.ids import DeviceId
from moorage.common.model.kernel import DeviceGrant
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState
from tests.nvml.scripted import ScriptedNvml, compiler
from tests.trixie import CONTAINERD, DOCKERD
from tests.wire.agent_harness import FakeManager

from .conftest import MakeRuntime, launch
from .engine import PrivateEngine, missing_requirement
from .images import import_python
from .node import Node, contained
from .test_limits import run

# A container's device nodes by minor number, and its GPU variables.
REPORT = """
import json, os, stat
nodes = {}
for folder, _, names in os.walk('/dev'):
    for name in names:
        if 'nvidia' in name:
            found = os.stat(os.path.join(folder, name))
            assert stat.S_ISCHR(found.st_mode)
            nodes[os.path.join(folder, name)] = os.minor(found.st_rdev)
            open(os.path.join(folder, name), 'rb').close()
names = ('NVIDIA_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES', 'OF_SITE')
print(json.dumps([nodes, {name: os.environ.get(name) for name in names}]))
"""
# Minor numbers of character devices of Linux's memory driver (major 1), which any container may
# open.
NULL = 3
ZERO = 5
FULL = 7
GPUS = {"/dev/nvidia0": NULL, "/dev/nvidia1": ZERO, "/dev/nvidia-caps/nvidia-cap3": FULL}


class Site:
    """A machine with two GPUs, and the CDI specifications of its engine."""

    def __init__(self, folder: Path) -> None:
        self.specifications = folder / "cdi"
        self.specifications.mkdir()
        self._nodes = folder / "nodes"
        self._nodes.mkdir()
        for number, minor in enumerate(GPUS.values()):
            os.mknod(self._nodes / str(number), 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            (self._nodes / str(number)).chmod(0o666)

    def specify(self, devices: Mapping[str, tuple[str, ...]], file: str = "nvidia.yaml") -> None:
        """Write the only specification: the device nodes of each device."""
        for old in self.specifications.iterdir():
            old.unlink()

        host = {path: str(self._nodes / str(number)) for number, path in enumerate(GPUS)}
        content = {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [
                {
                    "name": name,
                    "containerEdits": {
                        "deviceNodes": [{"path": p, "hostPath": host[p]} for p in nodes]
                    },
                }
                for name, nodes in devices.items()
            ],
            "containerEdits": {"env": ["OF_SITE=yes"]},
        }
        text = json.dumps(content) if file.endswith(".json") else yaml.safe_dump(content)
        (self.specifications / file).write_text(text)


def programs_with_cdi() -> tuple[Path, ...]:
    """The directories of a Docker engine 25 or later. Skips the tests if there is none."""
    program = shutil.which("dockerd") or ""
    version = (
        subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        if program
        else ""
    )
    found = re.search(r"version (\d+)", version)
    if found is not None and int(found[1]) >= 25:
        return ()
    if not (DOCKERD.exists() and CONTAINERD.exists()):
        pytest.skip("it needs Docker 25: python -m tests.deploy.prepare docker.io containerd")

    return DOCKERD.parent, CONTAINERD.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    if reason := missing_requirement():
        pytest.skip(reason)
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def cdi_engine(site: Site, reachable_dir: Path) -> Iterator[PrivateEngine]:
    """An engine that supports CDI and has no NVIDIA runtime."""
    engine = PrivateEngine(
        reachable_dir,
        gpus=False,
        live_restore=False,
        cdi=site.specifications,
        programs=programs_with_cdi(),
    )
    try:
        engine.start()
        import_python(engine.socket, reachable_dir)
        yield engine
    finally:
        engine.close()


async def seen_by(runtime: Runtime, order: Launch) -> tuple[dict[str, int], dict[str, str | None]]:
    """A container's device nodes and variables."""
    observation, output = await run(runtime, order)
    assert observation.exit_code == 0, output
    nodes, variables = json.loads(output)
    return nodes, variables


A = "GPU-aaa"
B = "GPU-bbb"
PLACES = {A: DevicePlace("/dev/nvidia0", "0"), B: DevicePlace("/dev/nvidia1", "1")}
BOTH = ("/dev/nvidia0", "/dev/nvidia1")
BY_UUID = {A: BOTH[:1], B: BOTH[1:], "all": BOTH}
BY_INDEX = {"0": BOTH[:1], "1": BOTH[1:], "all": BOTH}


@pytest.mark.parametrize(
    ("devices", "file"),
    [(BY_UUID, "nvidia.yaml"), (BY_INDEX, "nvidia.yaml"), (BY_UUID | BY_INDEX, "nvidia.json")],
)
async def test_container_gets_its_gpus_alone(
    make_runtime: MakeRuntime,
    cdi_engine: PrivateEngine,
    site: Site,
    devices: dict[str, tuple[str, ...]],
    file: str,
) -> None:
    site.specify(devices, file)
    runtime = make_runtime(cdi_engine.socket)
    nodes, variables = await seen_by(runtime, launch(REPORT, devices=(B,), places=PLACES))
    assert nodes == {"/dev/nvidia1": ZERO}
    assert variables == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "CUDA_VISIBLE_DEVICES": None,
        "OF_SITE": "yes",
    }
    nodes, _ = await seen_by(runtime, launch(REPORT, devices=(A, B), places=PLACES))
    assert nodes == {"/dev/nvidia0": NULL, "/dev/nvidia1": ZERO}
    nodes, variables = await seen_by(runtime, launch(REPORT))
    assert (nodes, variables["OF_SITE"]) == ({}, None), "without a GPU, none is seen"


async def test_index_that_belongs_to_another_gpu(
    make_runtime: MakeRuntime, cdi_engine: PrivateEngine, site: Site
) -> None:
    """After a GPU is lost, the driver renumbers the others; the specification is older."""
    site.specify(BY_INDEX)
    runtime = make_runtime(cdi_engine.socket)
    places = {B: DevicePlace("/dev/nvidia1", "0")}
    nodes, _ = await seen_by(runtime, launch(REPORT, devices=(B,), places=places))
    assert nodes == {"/dev/nvidia1": ZERO}


@pytest.mark.parametrize("name", ["MIG-ccc", "0:1"])
async def test_slice(
    make_runtime: MakeRuntime, cdi_engine: PrivateEngine, site: Site, name: str
) -> None:
    part = ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3")
    site.specify({"0": BOTH[:1], name: part})
    places = {"MIG-ccc": DevicePlace("/dev/nvidia0", "0:1")}
    runtime = make_runtime(cdi_engine.socket)
    nodes, _ = await seen_by(runtime, launch(REPORT, devices=("MIG-ccc",), places=places))
    assert nodes == {"/dev/nvidia0": NULL, "/dev/nvidia-caps/nvidia-cap3": FULL}


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ({"0": ("/dev/nvidia1",)}, "GPU-aaa"),
        ({}, "nvidia"),
    ],
    ids=["a GPU that the specification lacks", "no specification"],
)
async def test_gpu_that_the_engine_cannot_give(
    make_runtime: MakeRuntime,
    cdi_engine: PrivateEngine,
    site: Site,
    devices: dict[str, tuple[str, ...]],
    message: str,
) -> None:
    site.specify(devices)
    order = launch(REPORT, devices=(A,), places=PLACES)
    runtime = make_runtime(cdi_engine.socket)
    with pytest.raises(CreateFailed) as refused:
        await runtime.create(order)

    assert refused.value.reason is Reason.NO_NVIDIA_RUNTIME
    assert message in refused.value.message
    assert order.kernel_id not in await runtime.find()


@pytest_asyncio.fixture
async def gpu_node(
    fake_manager: FakeManager, tmp_path: Path, cdi_engine: PrivateEngine
) -> AsyncIterator[tuple[Node, ScriptedNvml]]:
    """An agent with the engine, on a machine with two GPUs."""
    if compiler() is None:
        pytest.skip("the scripted NVML needs a C compiler: apt install gcc libc6-dev")

    nvml = ScriptedNvml(tmp_path / "nvml", 2)
    node = Node(fake_manager, tmp_path, cdi_engine, inventory="auto", environment=nvml.environment)
    fake_manager.order()
    await node.start()
    yield node, nvml
    fake_manager.order()
    await fake_manager.wait_for_report(lambda report: not report.kernels)
    await node.kill()


async def test_agent_gives_a_container_the_gpu_of_its_session(
    gpu_node: tuple[Node, ScriptedNvml], fake_manager: FakeManager, site: Site
) -> None:
    """The specification has only indexes: the agent learns the index for a UUID from the driver."""
    _, nvml = gpu_node
    site.specify(BY_INDEX)
    uuid = nvml.uuid(1)
    await fake_manager.wait_for_report(
        lambda r: any(offer.device_id == uuid for offer in r.info.offers)
    )
    grants = (DeviceGrant("cuda.device", DeviceId(uuid), 1000),)
    order = contained("python3", "-c", REPORT, devices=grants)
    fake_manager.order(order)
    ended = await fake_manager.wait_for_kernel(order.kernel_id, ObservedState.EXITED)
    nodes, variables = json.loads(ended.log_tail)
    assert nodes == {"/dev/nvidia1": ZERO}
    assert variables["CUDA_VISIBLE_DEVICES"] == uuid
