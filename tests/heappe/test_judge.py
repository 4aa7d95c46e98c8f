"""Acceptance of the test server by py4heappe 4.0.0 (``tools/environment py4heappe`` installs
it)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.heappe import HeappeServer, Script, Timing
from tests.heappe.wire import PROFILES

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-py4heappe/bin/python"


@pytest.mark.skipif(
    not PYTHON.exists(), reason="tools/environment py4heappe installs HEAppE's own client"
)
@pytest.mark.parametrize("profile", PROFILES)
async def test_heappes_own_client_accepts_the_server(profile: str) -> None:
    async with HeappeServer(profile, timing=Timing(poll_s=0.5, cache_s=0.2)) as server:
        server.cluster.script = lambda job: Script(queue_s=0.5, load_s=0.2)
        judge = await asyncio.create_subprocess_exec(
            str(PYTHON), str(Path(__file__).with_name("judge.py")), server.url, "agent", "secret-agent",
            stdout=asyncio.subprocess.PIPE, stderr=sys.stderr,
        )  # fmt: skip
        out, _ = await judge.communicate()
        assert judge.returncode == 0
        lines = out.decode().splitlines()
        version = "V6.3.2" if profile == "6.3.2" else "V6.5.0"
        assert lines == [
            f"logged in {version}", "projects ['EXA-00-1', 'OLD-00-1']", "cluster bench gpu 4", "running",
            "listening", "models ['tiny']", "streamed 6", "posted 4", "cancelled", "Job was deleted",
        ]  # fmt: skip
        assert server.running() == []
