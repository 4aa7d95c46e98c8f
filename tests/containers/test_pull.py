"""Image pulls from a registry: policies, errors, credentials, progress and cancellation."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.agent.runtimes import CreateFailed
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from tests.wire.agent_harness import FakeManager

from .conftest import MakeRuntime, launch
from .engine import PrivateEngine
from .node import Node, contained
from .registry import Registry, registry


@pytest.fixture
def store(docker_engine: PrivateEngine) -> Iterator[Registry]:
    """A registry. Images pulled from it are removed after the test."""
    with registry() as store:
        yield store
        with contextlib.closing(docker_engine.api()) as api:
            for image in api.images():
                names = [*(image["RepoTags"] or []), *(image["RepoDigests"] or [])]
                if any(name.startswith(store.address) for name in names):
                    api.remove_image(image["Id"], force=True)


def manifests(store: Registry) -> int:
    return sum("/manifests/" in path for path in store.requests)


async def test_pull_policies(make_runtime: MakeRuntime, store: Registry) -> None:
    order = launch(image=f"{store.address}/team/tool:1")
    with pytest.raises(CreateFailed, match="docker_pull = never"):
        await make_runtime(pull="never").prepare(order)

    assert store.requests == []
    runtime = make_runtime()
    await asyncio.gather(*(runtime.prepare(order) for _ in range(4)))
    once = manifests(store)
    await runtime.prepare(order)
    await make_runtime(pull="never").prepare(order)
    assert manifests(store) == once > 0
    await make_runtime(pull="always").prepare(order)
    assert manifests(store) > once


async def test_image_by_digest(make_runtime: MakeRuntime, store: Registry) -> None:
    runtime = make_runtime()
    await runtime.prepare(launch(image=f"{store.address}/team/tool@{store.digest}"))
    wrong = "sha256:" + "0" * 64
    with pytest.raises(CreateFailed, match="manifest unknown") as caught:
        await runtime.prepare(launch(image=f"{store.address}/team/tool@{wrong}"))
    assert caught.value.reason is Reason.IMAGE_MISSING


async def test_removed_image_is_pulled_again(
    make_runtime: MakeRuntime, docker_engine: PrivateEngine, store: Registry
) -> None:
    order = launch("no-such-program", image=f"{store.address}/team/tool:1")
    runtime = make_runtime()
    await runtime.prepare(order)
    with contextlib.closing(docker_engine.api()) as api:
        api.remove_image(order.image)

    so_far = manifests(store)
    await runtime.prepare(order)
    assert manifests(store) == so_far, "a known image causes no request"
    handle = await runtime.create(order)
    assert manifests(store) > so_far
    assert handle.state["container"]


async def test_registry_error(make_runtime: MakeRuntime, store: Registry) -> None:
    store.error_status = 403
    with pytest.raises(CreateFailed, match="docker login") as caught:
        await make_runtime().prepare(launch(image=f"{store.address}/team/tool:1"))
    assert caught.value.reason is Reason.IMAGE_MISSING


async def test_registry_that_is_not_public_must_be_named_for_members(
    make_runtime: MakeRuntime, store: Registry
) -> None:
    order = launch(image=f"{store.address}/team/tool:1", isolated=True)
    with pytest.raises(CreateFailed, match="not a public address") as caught:
        await make_runtime().prepare(order)
    assert caught.value.reason is Reason.IMAGE_NOT_ALLOWED
    assert store.requests == []
    await make_runtime(images=("*", f"{store.address}/*")).prepare(order)
    assert manifests(store) > 0


async def test_registry_with_credentials(
    make_runtime: MakeRuntime, store: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials come from the agent user's ``docker login``, and are read for each pull."""
    store.login = "ann:correct-horse"
    order = launch(image=f"{store.address}/team/tool:1")
    runtime = make_runtime()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    for login in ("", "ann:wrong-battery"):
        log_in(tmp_path, store.address, login)
        with pytest.raises(CreateFailed, match="docker login") as caught:
            await runtime.prepare(order)

        assert caught.value.reason is Reason.IMAGE_MISSING
        assert "battery" not in str(caught.value)

    log_in(tmp_path, store.address, store.login)
    await runtime.prepare(order)


def log_in(folder: Path, address: str, login: str) -> None:
    auths = {address: {"auth": base64.b64encode(login.encode()).decode()}} if login else {}
    (folder / "config.json").write_text(json.dumps({"auths": auths}))


async def test_kernel_is_preparing_during_a_pull_and_can_be_stopped(
    fake_manager: FakeManager, node: Node, store: Registry
) -> None:
    store.open.clear()
    spec = contained("true", image=f"{store.address}/team/tool:1")
    fake_manager.order(spec)
    await fake_manager.wait_for_kernel(spec.kernel_id, S.PREPARING)
    async with asyncio.timeout(10):
        while not any("/blobs/" in path for path in store.requests):
            await asyncio.sleep(0.02)

    # The engine decides how often it reports progress.
    half = re.compile(rf"pulling {re.escape(spec.image)}: [01]\.[0-9] of 2\.0 MB, 0 of 1 layers")
    await fake_manager.wait_for_report(
        lambda report: any(half.fullmatch(kernel.detail) for kernel in report.kernels)
    )
    fake_manager.order()
    await fake_manager.wait_for_report(
        lambda r: not r.kernels and r.orders_generation == fake_manager.generation, timeout_s=5
    )

    # The next pull completes.
    store.open.set()
    again = contained("true", image=f"{store.address}/team/tool:1")
    fake_manager.order(again)
    ended = await fake_manager.wait_for_kernel(again.kernel_id, S.EXITED)
    assert ended.exit_code == 127, "the image was pulled, and has no such program"
