"""Sessions that call Celery tasks, from the command line to a worker, while the agent is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.status import Status
from tests.e2e.harness import Platform, kernels_below, until

from .broker import Broker

pytestmark = [pytest.mark.celery, pytest.mark.timeout(180)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def platform(home: Path, broker: Broker) -> Iterator[Platform]:
    running = Platform(home)
    running.env |= {
        "MOORAGE_AGENT__RUNTIMES": '["process", "celery"]',
        "MOORAGE_AGENT__CELERY_APP": "conform_tasks",
        "MOORAGE_AGENT__CELERY_WORKDIR": str(broker.application()),
        "MOORAGE_AGENT__INVENTORY": "fake:2xH100",
    }
    running.start("manager")
    running.start("agent")
    yield running
    running.close()
    assert kernels_below(home) == {}


async def test_tasks_are_sessions(platform: Platform, tmp_path: Path) -> None:
    await platform.wait_until_ready()
    added = platform.run(
        "run",
        "--runtime",
        "celery",
        "--",
        "conform_tasks.add",
        "--args",
        "[2]",
        "--kwargs",
        '{"b": 40}',
    )
    assert (added.returncode, "result: 42" in added.stdout) == (0, True), added.stderr
    wrong = platform.run("run", "--runtime", "celery", "--", "conform_tasks.wrong")
    assert (wrong.returncode, "no such layer" in wrong.stdout) == (1, True), wrong.stderr
    devices = platform.run(
        "run", "--runtime", "celery", "--gpus", "1", "--", "conform_tasks.devices"
    )
    assert '["GPU-fake-node-1-' in devices.stdout, devices.stdout + devices.stderr

    gate = tmp_path / "gate"
    long = platform.run(
        "run", "--name", "long", "--detach", "--runtime", "celery", "--",
        "conform_tasks.steps", "--args", json.dumps([str(gate)]),
    )  # fmt: skip
    assert long.returncode == 0, long.stderr

    async with platform.client() as client:

        async def reports() -> bool:
            progress = (await client.sessions.get("long")).kernels[0].progress
            return progress is not None and progress.step == 3

        await until("its progress is told", reports)
        platform.kill("agent")
        platform.start("agent")
        gate.touch()

        async def has_ended() -> bool:
            return (await client.sessions.get("long")).status is Status.TERMINATED

        await until("the task ends as a session that succeeded", has_ended)
        assert (await client.sessions.get("long")).result == "SUCCESS"
