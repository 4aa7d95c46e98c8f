"""The example in the documentation: an application, and sessions that call its tasks."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import Platform, kernels_below

from .broker import Broker

pytestmark = [pytest.mark.celery, pytest.mark.timeout(180)]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.smoke
async def test_sessions_call_the_tasks_of_the_example(home: Path, tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    application = tmp_path / "app"
    platform = Platform(home)
    shutil.copytree(EXAMPLES / "celery_app", application)
    config = application / "celeryconfig.py"
    config.write_text(config.read_text().replace("redis://127.0.0.1:6379/0", broker.url))
    platform.env |= {
        "MOORAGE_AGENT__RUNTIMES": '["process", "celery"]',
        "MOORAGE_AGENT__CELERY_APP": "tasks",
        "MOORAGE_AGENT__CELERY_WORKDIR": str(application),
    }

    try:
        platform.start("up")
        await platform.wait_until_ready()
        command = [sys.executable, str(EXAMPLES / "celery_sessions.py"), platform.url, platform.key]
        ran = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stderr
        train, fail = ran.stdout.splitlines()
        assert train == 'train SUCCESS result: {"loss": 0.4, "devices": ""}'
        assert fail.startswith("fail FAILED")
        assert "no such layer" in fail
    finally:
        platform.close()
        broker.kill()

    assert kernels_below(home) == {}
