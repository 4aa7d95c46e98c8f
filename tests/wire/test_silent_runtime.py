"""An agent whose checkpoint is unreadable while a runtime does not list its kernels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import agent_harness as h
import pytest
import pytest_asyncio

from moorage.agent import service
from moorage.agent.runtimes import ProcessRuntime, RuntimeFailed
from moorage.agent.runtimes.base import Handle
from moorage.common.link.messages import Report
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S


def listed(report: Report) -> bool:
    return report.info.lists("process")


@pytest_asyncio.fixture
async def manager() -> AsyncIterator[h.FakeManager]:
    async with h.run_fake_manager() as manager:
        yield manager


async def test_kernels_of_a_silent_runtime_are_neither_gone_nor_created_again(
    manager: h.FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = h.kernel("sleep", "3600")
    other = h.kernel("sleep", "3600")
    async with h.make_agent(manager, tmp_path):
        manager.order(running)
        await manager.wait_for_kernel(running.kernel_id, S.RUNNING)
        assert listed(manager.last_report)
        pids = sorted(h.processes(running.kernel_id))

    for path in (tmp_path / "agent-one" / "checkpoint").iterdir():
        path.write_text("{ not JSON")

    monkeypatch.setattr(service, "KERNEL_SCAN_S", 0.5)
    find = ProcessRuntime.find
    silent = True

    async def silent_find(self: ProcessRuntime) -> dict[KernelId, Handle]:
        if silent:
            raise RuntimeFailed("no answer")
        return await find(self)

    monkeypatch.setattr(ProcessRuntime, "find", silent_find)
    manager.order(running, other)
    before = len(manager.reports)
    async with h.make_agent(manager, tmp_path):
        report = await manager.wait_for_report(
            lambda r: len(manager.reports) > before and r.orders_generation == manager.generation
        )
        assert (report.kernels, listed(report)) == ((), False)
        assert sorted(h.processes(running.kernel_id)) == pids
        silent = False
        await manager.wait_for_report(listed)
        await manager.wait_for_kernel(running.kernel_id, S.RUNNING)
        assert sorted(h.processes(running.kernel_id)) == pids
        await manager.wait_for_kernel(other.kernel_id, S.RUNNING)
        manager.order()
        for spec in (running, other):
            await h.wait_until_no_processes(spec.kernel_id)
