"""The download step for containers: what it writes into the cache that all containers read, and
whose variables apply. The hub is on loopback, and the program is the real one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.local_hub import COMMIT, LocalHub, tiny_model
from tests.unit.agent.kernel_node import CLOCK, kernel

from moorage.agent import models
from moorage.agent.engines import ENGINES, NodeInfo
from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.kernel import create
from moorage.agent.kernel.checkpoint import CheckpointFiles, KernelRecord
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.interruption import Interruption
from moorage.agent.kernel.leases import KernelLeases
from moorage.agent.kernel.manager import KernelManager
from moorage.agent.runtimes import FakeRuntime, Handle, Launch
from moorage.agent.runtimes.base import Capabilities, CreateFailed, OnProgress, ignore_progress
from moorage.agent.runtimes.fake import FakeNode
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import PortAllocator
from moorage.common.link.messages import Orders
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.status import SessionType

FOLDER = "huggingface/hub/models--org--tiny"
MEMBER = True
ADMINISTRATOR = False


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    repositories = {"org/tiny": tiny_model(), "org/gated": tiny_model()}
    with LocalHub(repositories, tokens={"org/gated": "hf_1"}) as running:
        yield running


@pytest.fixture
def other_hub() -> Iterator[LocalHub]:
    with LocalHub({"org/tiny": tiny_model(b"poison")}) as running:
        yield running


@pytest.fixture(autouse=True)
def agent_env(hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.requests.clear()
    monkeypatch.setenv("HF_HOME", str(tmp_path / "agent"))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)


def model(isolated: bool, **fields: Any) -> KernelSpec:
    given = {
        "engine": "vllm",
        "session_type": SessionType.INFERENCE,
        "model": "org/tiny",
        "command": (),
    }
    return kernel(**given | {"isolated": isolated} | fields)


class Runtime(FakeRuntime):
    """A container runtime, or a process runtime on this node that cannot isolate anything."""

    def __init__(self, state: Path, capabilities: Capabilities) -> None:
        super().__init__(LogStore(state / "logs"), FakeNode())
        self.capabilities = capabilities
        self.launched = asyncio.Queue[Launch]()

    async def prepare(
        self, launch: Launch, on_progress: OnProgress = ignore_progress
    ) -> tuple[ServicePort, ...]:
        return (ServicePort("of-the-image", 8888),)

    async def create(self, launch: Launch) -> Handle:
        self.launched.put_nowait(launch)
        return await super().create(launch)


CONTAINERS = Capabilities(contained=True, images=True, model_mounts=True)
PROCESSES = Capabilities(node_processes=True)


def context_of(
    state: Path,
    capabilities: Capabilities = CONTAINERS,
    cache: str = "cache",
    runtime: Runtime | None = None,
) -> AgentContext:
    return AgentContext(
        clock=CLOCK,
        checkpoint=CheckpointFiles(state),
        ports=PortAllocator("22000-22099", "127.0.0.1", clock=CLOCK),
        logs=LogStore(state / "logs"),
        runtimes={"fake": runtime or Runtime(state, capabilities)},
        node=NodeInfo(),
        host="127.0.0.1",
        process_dir=lambda kernel_id: state / kernel_id,
        workspaces=Workspaces(state),
        leases=KernelLeases(state, CLOCK),
        model_cache=state / cache if cache else None,
    )


async def fetched(context: AgentContext, spec: KernelSpec) -> models.FetchedModel | None:
    never = Interruption(asyncio.Event(), lambda: False)
    return await create.fetch_model(context, spec, lambda _: None, never)


def launched(context: AgentContext, spec: KernelSpec, model: models.FetchedModel | None) -> Launch:
    record = KernelRecord(spec, 1.0, port=22000)
    return create.prepare_launch(context, record, ENGINES["vllm"], model)


async def test_a_container_gets_its_model_from_the_shared_cache(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    spec = model(MEMBER)
    old = os.umask(0o077)
    try:
        found = await fetched(context, spec)
    finally:
        os.umask(old)

    launch = launched(context, spec, found)
    folder = tmp_path / "cache" / FOLDER
    inside = f"/moorage/models/models--org--tiny/snapshots/{COMMIT}"
    assert (launch.model_folder, launch.paths) == (str(folder), ())
    assert launch.argv[:3] == ("vllm", "serve", inside)
    files = folder / "snapshots" / COMMIT
    assert sorted(path.name for path in files.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]

    for path in (folder, folder / "snapshots", folder / "blobs", files, *files.iterdir()):
        mode = path.stat().st_mode & 0o777
        assert mode == (0o755 if path.is_dir() else 0o644), (
            f"{path}: any user reads it, the agent writes it"
        )

    assert not (tmp_path / "agent" / "hub").exists()


async def test_a_container_whose_image_declares_ports_has_its_model_too(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, CONTAINERS)
    kernels = KernelManager(context_of(tmp_path, runtime=runtime), on_change=lambda _: None)
    await kernels.recover()

    try:
        kernels.apply_orders(Orders(1, (model(MEMBER),)))
        async with asyncio.timeout(30):
            launch = await runtime.launched.get()
    finally:
        await kernels.close()

    assert [app.name for app in launch.apps] == ["of-the-image"]
    assert launch.model_folder == str(tmp_path / "cache" / FOLDER)
    assert launch.argv[2].startswith("/moorage/models/")


async def test_without_a_cache_the_engine_downloads_inside_its_container(tmp_path: Path) -> None:
    context = context_of(tmp_path, cache="")
    spec = model(MEMBER)
    assert await fetched(context, spec) is None
    launch = launched(context, spec, None)
    assert (launch.model_folder, launch.argv[:3]) == ("", ("vllm", "serve", "org/tiny"))


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN_PATH"]
)
async def test_a_member_with_a_hub_of_its_own_does_not_fill_the_cache(
    tmp_path: Path, hub: LocalHub, name: str
) -> None:
    spec = model(MEMBER, env={name: str(tmp_path / "theirs")})
    assert await fetched(context_of(tmp_path), spec) is None
    assert (hub.requests, (tmp_path / "cache").exists()) == ([], False)


async def test_variables_of_a_member_never_reach_the_download_step(
    tmp_path: Path, hub: LocalHub, other_hub: LocalHub
) -> None:
    """After the check of ``is_shared``, because these variables would choose the hub, the token and
    the directory."""
    env = {
        "HF_ENDPOINT": other_hub.url,
        "HF_HUB_CACHE": str(tmp_path / "theirs"),
        "https_proxy": "http://x",
    }
    found = await models.fetch_shared(
        model(MEMBER, env=env), tmp_path / "cache", os.environ, lambda _: None
    )
    assert found is not None
    assert hub.requests
    assert (other_hub.requests, (tmp_path / "theirs").exists()) == ([], False)


async def test_an_administrator_may_give_a_token_but_no_directory(tmp_path: Path) -> None:
    env = {"HF_TOKEN": "hf_1", "HF_HUB_CACHE": str(tmp_path / "elsewhere")}
    spec = model(ADMINISTRATOR, model="org/gated", env=env)
    found = await fetched(context_of(tmp_path), spec)
    assert found is not None
    assert Path(found.folder).parent == tmp_path / "cache" / "huggingface" / "hub"
    assert not (tmp_path / "elsewhere").exists()


async def test_a_model_that_needs_a_token_is_refused_with_the_step_that_failed(
    tmp_path: Path,
) -> None:
    with pytest.raises(create.StartRefused, match="accept its terms, and pass HF_TOKEN"):
        await fetched(context_of(tmp_path), model(MEMBER, model="org/gated"))


async def test_without_the_hub_package_a_filled_cache_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    context = context_of(tmp_path)
    spec = model(MEMBER)
    assert await fetched(context, spec) is None
    folder = tmp_path / "cache" / FOLDER
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    assert await fetched(context, spec) is None, "no weights"
    (folder / "snapshots" / COMMIT / "model.safetensors").write_text("w")
    assert await fetched(context, spec) == models.FetchedModel(
        f"/moorage/models/models--org--tiny/snapshots/{COMMIT}", str(folder)
    )


async def test_nothing_is_fetched_for_a_process_of_a_member_that_will_be_refused(
    tmp_path: Path, hub: LocalHub
) -> None:
    """An agent that cannot isolate it would read its HF_TOKEN_PATH as the agent's user."""
    context = context_of(tmp_path, PROCESSES)
    assert (
        await fetched(context, model(MEMBER, env={"HF_HUB_CACHE": str(tmp_path / "theirs")}))
        is None
    )
    assert (hub.requests, (tmp_path / "theirs").exists()) == ([], False)
    assert await fetched(context, model(ADMINISTRATOR)) is not None


@pytest.mark.parametrize("revision", ["../../evil", "/etc/shadow", "a/../b", "-x", "a//b", "a\n"])
async def test_a_revision_is_no_path(tmp_path: Path, hub: LocalHub, revision: str) -> None:
    for args in ((f"--revision={revision}",), ("--revision", revision)):
        with pytest.raises(CreateFailed, match="not a branch, tag or commit"):
            await models.fetch_shared(
                model(MEMBER, args=args), tmp_path / "cache", os.environ, lambda _: None
            )
    assert hub.requests == []
