"""A disk that gets full: what is removed, what is refused, what is said. The engine's disk is 160 MiB of
memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.agent.runtimes import CreateFailed
from moorage.agent.runtimes.docker import (
    ContainerRules,
    DiskFull,
    DockerRuntime,
    Engine,
    ImageGarbageCollector,
    ImageGcRules,
    PulledImages,
)
from moorage.agent.runtimes.docker.availability import RuntimeAvailability
from moorage.agent.runtimes.docker.disk import disk_of
from moorage.agent.runtimes.docker.image_gc import Disk
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.model.reasons import Reason

from .conftest import launch
from .engine import PrivateEngine, lacks
from .images import import_python
from .registry import registry

ALWAYS = ImageGcRules(high=1, low=0)


@pytest.fixture(scope="module")
def small_engine(reachable_dir: Path) -> Iterator[PrivateEngine]:
    if reason := lacks():
        pytest.skip(reason)
    engine = PrivateEngine(reachable_dir, gpus=False, live_restore=False, data_mib=160)
    try:
        engine.start()
        import_python(engine.socket, reachable_dir)
        yield engine
    finally:
        engine.close()


class Bench:
    def __init__(self, engine: PrivateEngine, state: Path) -> None:
        self.engine, self.state, self.clock = engine, state, ManualClock()
        self.made: list[DockerRuntime] = []

    def runtime(self, gc: ImageGcRules, look_at: Callable[[str], Disk] = disk_of) -> DockerRuntime:
        sealer = load_label_signer(self.state / "docker.key", SystemClock())
        engine = Engine(self.engine.socket)
        pulled = PulledImages(self.state / "images.json", self.clock)
        house = ImageGarbageCollector(engine, gc, pulled, self.clock, look_at)
        logs, rules = LogStore(self.state / "logs"), ContainerRules()
        made = DockerRuntime(engine, sealer, logs, rules=rules, address="127.0.0.1", house=house)
        self.made.append(made)
        return made

    def images(self) -> set[str]:
        with contextlib.closing(self.engine.api()) as api:
            return {name for row in api.images() for name in row["RepoTags"] or ()}


@pytest.fixture
def bench(small_engine: PrivateEngine, tmp_path: Path) -> Bench:
    return Bench(small_engine, tmp_path)


async def close(bench: Bench) -> None:
    for runtime in bench.made:
        for handle in (await runtime.find()).values():
            await runtime.destroy(handle)
        await runtime.close()


async def test_images_go_least_recently_used_first_and_only_ours(bench: Bench) -> None:
    with registry() as one, registry() as two, registry() as three:
        names = [f"{store.address}/team/tool:1" for store in (one, two, three)]
        first, second, busy = (launch("no-such-program", image=name) for name in names)
        runtime = bench.runtime(ALWAYS)
        for order in (first, second, busy):
            await runtime.prepare(order)
        await runtime.create(busy)
        await runtime.tidy()
        assert bench.images() >= set(names), "all are young"
        bench.clock.advance(700)
        await runtime.prepare(first)  # asked for again
        # Only look: nothing goes. And what a new agent knows of all this is on disk.
        await bench.runtime(ImageGcRules(mode="dry-run", high=1, low=0)).tidy()
        assert bench.images() >= set(names)
        await runtime.tidy()
        left = bench.images()
        assert set(names) & left == {names[0], names[2]}, "one is young, one is in use"
        assert any("python" in name for name in left), "it was not pulled by us"
        bench.clock.advance(700)
        await bench.runtime(ALWAYS).tidy()  # another start of the agent
        assert set(names) & bench.images() == {names[2]}
        await close(bench)
        with contextlib.closing(bench.engine.api()) as api:
            api.remove_image(names[2])


async def test_a_nearly_full_disk_takes_nothing_new(bench: Bench) -> None:
    runtime = bench.runtime(ImageGcRules(mode="off", min_free=1 << 40))
    with pytest.raises(DiskFull, match=r"agent\.docker_min_free"):
        await runtime.probe()
    presence = RuntimeAvailability(runtime, bench.clock)
    await presence.look()
    assert not presence.offered
    # One that was on its way here is told so, and may try another agent.
    with pytest.raises(CreateFailed, match="MiB are left in") as caught:
        await runtime.prepare(launch())
    assert (caught.value.reason, caught.value.clean) == (Reason.DISK_FULL, True)
    room = RuntimeAvailability(bench.runtime(ImageGcRules(mode="off")), bench.clock)
    await room.look()
    assert room.offered
    await close(bench)


async def test_a_disk_that_cannot_be_seen_is_said_once(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    def nowhere(folder: str) -> Disk:
        raise FileNotFoundError(2, "No such file or directory", folder)

    runtime = bench.runtime(ALWAYS, look_at=nowhere)
    for _ in range(3):
        await runtime.probe()
        await runtime.tidy()
    said = "".join(capsys.readouterr())
    assert said.count("cannot see how full") == 1
    assert "deploy/compose" in said
    await close(bench)


async def test_a_disk_that_is_full_is_told_from_a_missing_image(bench: Bench) -> None:
    runtime = bench.runtime(ImageGcRules(mode="off"))
    filler = bench.engine.data / "filler"
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
    await close(bench)
