"""Image garbage collection and a full disk. The engine's data directory is a tmpfs of 160 MiB."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.agent.runtimes import CreateFailed
from moorage.agent.runtimes.availability import RuntimeAvailability
from moorage.agent.runtimes.docker import (
    ContainerRules,
    DiskFull,
    DockerEngine,
    DockerRuntime,
    ImageGarbageCollector,
    ImageGcRules,
    PulledImages,
)
from moorage.agent.runtimes.docker.image_gc import Disk, read_disk
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.model.reasons import Reason

from .conftest import launch
from .engine import PrivateEngine, missing_requirement
from .images import import_python
from .registry import registry

ALWAYS = ImageGcRules(high=1, low=0)


@pytest.fixture(scope="module")
def small_engine(reachable_dir: Path) -> Iterator[PrivateEngine]:
    if reason := missing_requirement():
        pytest.skip(reason)
    engine = PrivateEngine(reachable_dir, gpus=False, live_restore=False, data_mib=160)
    try:
        engine.start()
        import_python(engine.socket, reachable_dir)
        yield engine
    finally:
        engine.close()


class Harness:
    def __init__(self, engine: PrivateEngine, state: Path) -> None:
        self.engine = engine
        self.state = state
        self.clock = ManualClock()
        self.runtimes: list[DockerRuntime] = []

    def runtime(
        self, gc_rules: ImageGcRules, read_disk: Callable[[str], Disk] = read_disk
    ) -> DockerRuntime:
        signer = load_label_signer(self.state / "docker.key", SystemClock())
        engine = DockerEngine(self.engine.socket)
        pulled = PulledImages(self.state / "images.json", self.clock)
        image_gc = ImageGarbageCollector(engine, gc_rules, pulled, self.clock, read_disk=read_disk)
        logs = LogStore(self.state / "logs")
        rules = ContainerRules()
        runtime = DockerRuntime(
            engine, signer, logs, rules=rules, address="127.0.0.1", image_gc=image_gc
        )
        self.runtimes.append(runtime)

        return runtime

    def images(self) -> set[str]:
        with contextlib.closing(self.engine.api()) as api:
            return {name for row in api.images() for name in row["RepoTags"] or ()}


@pytest.fixture
def harness(small_engine: PrivateEngine, tmp_path: Path) -> Harness:
    return Harness(small_engine, tmp_path)


async def close(harness: Harness) -> None:
    for runtime in harness.runtimes:
        for handle in (await runtime.find()).values():
            await runtime.destroy(handle)
        await runtime.close()


async def test_least_recently_used_images_are_removed_and_only_pulled_ones(
    harness: Harness,
) -> None:
    with registry() as one, registry() as two, registry() as three:
        names = [f"{store.address}/team/tool:1" for store in (one, two, three)]
        first, second, busy = (launch("no-such-program", image=name) for name in names)
        runtime = harness.runtime(ALWAYS)
        for order in (first, second, busy):
            await runtime.prepare(order)

        await runtime.create(busy)
        await runtime.collect_images()
        assert harness.images() >= set(names), "all are too young"
        harness.clock.advance(700)
        await runtime.prepare(first)  # used again

        # A dry run on a restarted agent removes nothing; the agent has read the list of pulled
        # images from disk.
        await harness.runtime(ImageGcRules(mode="dry-run", high=1, low=0)).collect_images()
        assert harness.images() >= set(names)
        await runtime.collect_images()
        remaining = harness.images()
        assert set(names) & remaining == {names[0], names[2]}, (
            "one was used recently, one is in use"
        )
        assert any("python" in name for name in remaining), "Moorage has not pulled it"
        harness.clock.advance(700)
        await harness.runtime(ALWAYS).collect_images()  # a restarted agent
        assert set(names) & harness.images() == {names[2]}
        await close(harness)
        with contextlib.closing(harness.engine.api()) as api:
            api.remove_image(names[2])


async def test_full_disk_refuses_new_containers(harness: Harness) -> None:
    runtime = harness.runtime(ImageGcRules(mode="off", min_free=1 << 40))
    with pytest.raises(DiskFull, match=r"agent\.docker_min_free"):
        await runtime.probe()

    availability = RuntimeAvailability(runtime, harness.clock)
    await availability.check()
    assert not availability.offered

    # A session that has already been placed here fails with a retryable reason.
    with pytest.raises(CreateFailed, match="MiB are free in") as caught:
        await runtime.prepare(launch())

    assert (caught.value.reason, caught.value.clean) == (Reason.DISK_FULL, True)
    with_space = RuntimeAvailability(harness.runtime(ImageGcRules(mode="off")), harness.clock)
    await with_space.check()
    assert with_space.offered
    await close(harness)


async def test_unreadable_disk_is_logged_once(
    harness: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreadable(folder: str) -> Disk:
        raise FileNotFoundError(2, "No such file or directory", folder)

    runtime = harness.runtime(ALWAYS, read_disk=unreadable)
    for _ in range(3):
        await runtime.probe()
        await runtime.collect_images()

    output = "".join(capsys.readouterr())
    assert output.count("cannot read the usage") == 1
    assert "deploy/compose" in output
    await close(harness)


async def test_full_disk_is_distinguished_from_a_missing_image(harness: Harness) -> None:
    runtime = harness.runtime(ImageGcRules(mode="off"))
    filler = harness.engine.data / "filler"
    with registry() as store:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass

        try:
            with pytest.raises(CreateFailed, match="no space left on device") as caught:
                await runtime.prepare(launch(image=f"{store.address}/team/tool:1"))

            assert caught.value.reason is Reason.DISK_FULL
            with pytest.raises(CreateFailed, match="no space left on device") as caught:
                await runtime.create(launch())

            assert caught.value.reason is Reason.DISK_FULL
        finally:
            filler.unlink()

        assert await runtime.find() == {}
        await runtime.create(launch())

    await close(harness)
