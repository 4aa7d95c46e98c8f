"""Health checks and metrics of a real engine, llama.cpp, when it is busy, and when it is stopped
with SIGSTOP and SIGKILL."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest
from proxy_harness import ENGINE_KEY
from test_proxy_llamacpp import ENDLESS, llamacpp
from tests.freezing import freeze

from moorage.agent.engines import ENGINES
from moorage.agent.engines.base import generation_probe
from moorage.agent.kernel import readiness
from moorage.agent.kernel.readiness import UNREACHABLE, ReadinessCheck
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

SPEC = KernelSpec(
    KernelId("k"),
    SessionId("s"),
    session_name="n",
    session_type=SessionType.INFERENCE,
    runtime="process",
    engine="llamacpp",
    served_name="tiny",
    secret=ENGINE_KEY,
)


async def test_llamacpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "CHECK_TIMEOUT_S", 2.0)
    async with llamacpp(tmp_path) as (port, pid):
        url = f"http://127.0.0.1:{port}"
        check = ReadinessCheck(ENGINES["llamacpp"], (generation_probe(SPEC),), url)
        async with asyncio.timeout(30):
            while not await check.probe_once():
                await asyncio.sleep(0.05)

        idle = await check.read_metrics()
        assert idle is not None
        assert (idle.running, idle.waiting) == (0, 0)
        assert await check.read_max_model_len() == 2048
        headers = {"Authorization": f"Bearer {ENGINE_KEY}"}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.post(f"{url}/v1/chat/completions", json=ENDLESS) as stream,
        ):
            await stream.content.readany()
            async with asyncio.timeout(30):  # until its counters show that it works
                while (
                    busy := await check.read_metrics()
                ) is None or busy.progress <= idle.progress:
                    await asyncio.sleep(0.01)

            assert busy.running == 1

        await freeze(pid)
        assert await check.probe_once() is None
        assert await check.read_metrics() == UNREACHABLE
        os.kill(pid, signal.SIGKILL)
        assert await check.probe_once() in (False, None)
