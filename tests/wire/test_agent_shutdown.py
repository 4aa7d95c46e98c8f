"""Agent shutdown: its kernels, and the shutdown notice to the manager."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import agent_harness as h
import pytest_asyncio

from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S


@pytest_asyncio.fixture
async def manager() -> AsyncIterator[h.FakeManager]:
    async with h.run_fake_manager() as manager:
        yield manager


async def test_shutdown_terminates_kernels_if_configured(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    obedient = h.kernel("sleep", "3600")
    stubborn = h.kernel("sh", "-c", "trap '' TERM; echo up; sleep 3600")
    stubborn = replace(stubborn, stop_grace_s=0.3)
    async with h.make_agent(manager, tmp_path, stop_kernels_on_exit=True):
        manager.order(obedient, stubborn)
        for spec in (obedient, stubborn):
            await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)

    for spec in (obedient, stubborn):
        assert list(h.processes(spec.kernel_id)) == []

    assert manager.last_report.draining
    assert [(k.state, k.reason) for k in manager.last_report.kernels] == [
        (S.EXITED, Reason.AGENT_SHUTDOWN)
    ] * 2


async def test_shutdown_notice_is_sent_before_the_first_orders(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    async with h.make_agent(manager, tmp_path):
        await manager.wait_for_report(lambda report: True)
    assert manager.last_report.draining
