"""The conformance suite on the ``celery`` runtime, and further tests, with a real Redis and real
workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.agent.runtimes import CreateFailed, Handle, Launch, RuntimeFailed, procfs
from moorage.agent.runtimes.celery.runtime import Application, CeleryRuntime
from moorage.agent.state.logs import LogStore
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S
from moorage.testing import RuntimeConformance
from moorage.testing.runtime_conformance import eventually, until

from .broker import Broker

pytestmark = [pytest.mark.celery, pytest.mark.timeout(120)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()


class CeleryHarness:
    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.broker = broker
        self._runtimes: list[CeleryRuntime] = []

    def runtime(self, app: str = "conform_tasks") -> CeleryRuntime:
        runtime = CeleryRuntime(
            self.folder / "state",
            LogStore(self.folder / "logs"),
            Application(app, str(self.broker.application())),
            log_max_bytes=1_000_000,
            log_keep_files=1,
        )
        self._runtimes.append(runtime)
        return runtime

    def task(self, *command: str, env: dict[str, str] | None = None) -> Launch:
        env = {"PATH": os.environ["PATH"]} | (env or {})
        return Launch(KernelId(str(uuid.uuid4())), command, env, port=4711)

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, output: str = ""
    ) -> Launch:
        return self.task(
            "conform_tasks.conform", "--args", json.dumps([run_s, code, stubborn, output])
        )

    async def close(self) -> None:
        for runtime in self._runtimes:
            runtime.close()


@pytest.fixture
def new_harness(tmp_path: Path, broker: Broker) -> CeleryHarness:
    return CeleryHarness(tmp_path, broker)


async def ended(runtime: CeleryRuntime, handle: Handle) -> tuple[int | None, str]:
    """The exit code and the log."""
    await until(runtime, handle, S.EXITED)
    return (await runtime.observe(handle)).exit_code, await runtime.log_tail(handle)


class TestCelery(RuntimeConformance):
    async def test_result_is_fetched_and_forgotten(self, harness: CeleryHarness) -> None:
        runtime = harness.runtime()
        await runtime.probe()
        launch = harness.task(
            "conform_tasks.add", "--args=[2]", "--kwargs", '{"b": 3}', "--queue", "gpu"
        )
        handle = await runtime.create(launch)
        code, log = await ended(runtime, handle)
        assert (code, "result: 5" in log) == (0, True), log
        work = runtime.work_dir(launch.kernel_id)
        assert json.loads((work / "result.json").read_text()) == 5
        left = [key for key in harness.broker.client().scan_iter() if str(launch.kernel_id) in key]
        assert left == [], "neither the result nor the queue is left"

    async def test_task_has_the_planned_devices(self, harness: CeleryHarness) -> None:
        runtime = harness.runtime()
        await runtime.probe()
        env = {"CUDA_VISIBLE_DEVICES": "GPU-3,GPU-5"}
        handle = await runtime.create(harness.task("conform_tasks.devices", env=env))
        code, log = await ended(runtime, handle)
        assert (code, '["GPU-3,GPU-5", ' in log) == (0, True), log

    async def test_stop_ends_the_process_of_the_task(self, harness: CeleryHarness) -> None:
        runtime = harness.runtime()
        await runtime.probe()
        launch = harness.task("conform_tasks.conform", "--args", '[null, 0, false, "on\\n"]')
        handle = await runtime.create(launch)
        await eventually(lambda: _logged(runtime, handle, "on\n"))
        before = await _processes(runtime, launch.kernel_id, handle)
        await runtime.stop(handle, 20)
        code, log = await ended(runtime, handle)
        assert code == -signal.SIGTERM, log

        async def none_left() -> bool:
            return not [pid for pid in before if (found := procfs.stat(pid)) and found.state != "Z"]

        assert len(before) >= 3, "the program, the worker, and the process of its pool"
        await eventually(none_left)

    async def test_stopped_task_has_its_grace_period(
        self, harness: CeleryHarness, tmp_path: Path
    ) -> None:
        runtime = harness.runtime()
        saved = tmp_path / "saved"
        await runtime.probe()
        handle = await runtime.create(
            harness.task("conform_tasks.saves", "--args", json.dumps([str(saved)]))
        )
        await eventually(lambda: _logged(runtime, handle, "on\n"))
        await runtime.stop(handle, 20)
        code, log = await ended(runtime, handle)
        assert (code, saved.read_text()) == (-signal.SIGTERM, "checkpoint"), log

    async def test_progress_is_passed_on(self, harness: CeleryHarness, tmp_path: Path) -> None:
        runtime = harness.runtime()
        progress = tmp_path / "progress"
        gate = tmp_path / "gate"
        await runtime.probe()
        env = {"MOORAGE_PROGRESS": str(progress)}
        launch = harness.task("conform_tasks.steps", "--args", json.dumps([str(gate)]), env=env)
        handle = await runtime.create(launch)
        last = {"step": 3, "of": 3, "message": "layer"}

        async def reported() -> bool:
            lines = progress.read_text().splitlines(keepends=True) if progress.exists() else []
            return bool(lines) and lines[-1].endswith("\n") and json.loads(lines[-1]) == last

        await eventually(reported)
        gate.touch()
        assert (await ended(runtime, handle))[0] == 0

    async def test_retries_of_celery_are_one_run(
        self, harness: CeleryHarness, tmp_path: Path
    ) -> None:
        runtime = harness.runtime()
        marks = tmp_path / "marks"
        await runtime.probe()
        handle = await runtime.create(
            harness.task("conform_tasks.flaky", "--args", json.dumps([str(marks)]))
        )
        code, log = await ended(runtime, handle)
        assert (code, marks.read_text()) == (0, "xxx"), log

    @pytest.mark.parametrize(
        ("task", "cause"),
        [("conform_tasks.wrong", "no such layer"), ("conform_tasks.missing", "never registered")],
    )
    async def test_failures_name_their_cause(
        self, harness: CeleryHarness, task: str, cause: str
    ) -> None:
        runtime = harness.runtime()
        await runtime.probe()
        code, log = await ended(runtime, await runtime.create(harness.task(task)))
        assert (code, cause in log.splitlines()[-1]) == (1, True), log

    async def test_loss_of_the_broker_loses_no_result(
        self, harness: CeleryHarness, tmp_path: Path
    ) -> None:
        """The broker, which is also the result back end, is gone when the task ends, and returns
        empty."""
        runtime = harness.runtime()
        progress = tmp_path / "progress"
        gate = tmp_path / "gate"
        await runtime.probe()
        env = {"MOORAGE_PROGRESS": str(progress)}
        launch = harness.task("conform_tasks.steps", "--args", json.dumps([str(gate)]), env=env)
        handle = await runtime.create(launch)

        async def waits_at_the_gate() -> bool:
            return progress.exists() and '"step": 3' in progress.read_text()

        await eventually(waits_at_the_gate)
        harness.broker.kill()
        with pytest.raises(RuntimeFailed, match="broker of the Celery application conform_tasks"):
            await runtime.probe()

        gate.touch()
        await asyncio.sleep(2)
        harness.broker.start()
        code, log = await ended(runtime, handle)
        assert (code, 'result: "trained"' in log) == (0, True), log

    async def test_loss_of_the_worker_is_a_failure(
        self, harness: CeleryHarness, tmp_path: Path
    ) -> None:
        runtime = harness.runtime()
        await runtime.probe()
        launch = harness.task("conform_tasks.conform", "--args", '[null, 0, false, "on\\n"]')
        handle = await runtime.create(launch)
        await eventually(lambda: _logged(runtime, handle, "on\n"))
        newest = max(await _processes(runtime, launch.kernel_id, handle))
        os.killpg(os.getpgid(newest), signal.SIGKILL)  # the worker and its pool
        code, log = await ended(runtime, handle)
        assert (code, "the worker ended with status" in log) == (1, True), log

    async def test_worker_that_never_starts_is_a_failure(self, harness: CeleryHarness) -> None:
        runtime = harness.runtime()
        await runtime.probe()
        handle = await runtime.create(harness.task("conform_tasks.wrong", env={"NO_WORKER": "1"}))
        code, log = await ended(runtime, handle)
        assert (code, "no worker starts the task" in log) == (1, True), log

    async def test_wrong_commands_are_refused(self, harness: CeleryHarness) -> None:
        runtime = harness.runtime()
        await runtime.probe()
        for command in (
            ("tasks add",),
            ("t", "--args", "[1"),
            ("t", "--args", "{}"),
            ("t", "-x"),
            ("t", "--queue"),
        ):
            with pytest.raises(CreateFailed, match="command of a Celery task") as caught:
                await runtime.create(harness.task(*command))
            assert caught.value.clean

        assert await runtime.find() == {}

    async def test_application_that_cannot_be_loaded(self, harness: CeleryHarness) -> None:
        with pytest.raises(RuntimeFailed, match=r"application nothing cannot be loaded: .*nothing"):
            await harness.runtime("nothing").probe()


async def _logged(runtime: CeleryRuntime, handle: Handle, text: str) -> bool:
    return text in await runtime.log_tail(handle)


async def _processes(
    runtime: CeleryRuntime, kernel_id: KernelId, handle: Handle
) -> tuple[int, ...]:
    return (await runtime.usage({kernel_id: handle}))[kernel_id].pids
