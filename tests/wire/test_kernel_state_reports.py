"""Kernel states of the process runtime in reports that are sent before the agent knows them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import agent_harness as h
import pytest

from moorage.agent.kernel import create
from moorage.agent.runtimes import Handle, ProcessRuntime, RuntimeObservation
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S


async def test_report_that_leaves_before_the_first_step_says_nothing_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent half a second after the orders arrived, whatever the agent has done by then."""
    go = asyncio.Event()
    check = create.check_requirements

    async def late(*args: Any) -> None:
        await go.wait()
        await check(*args)

    monkeypatch.setattr(create, "check_requirements", late)
    spec = h.kernel("sleep", "60")
    async with h.run_fake_manager() as manager, h.make_agent(manager, tmp_path):
        manager.order(spec)
        report = await manager.wait_for_report(lambda r: r.orders_generation == manager.generation)
        assert _state(report, spec.kernel_id) is S.UNKNOWN
        go.set()
        await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        manager.order()
        await h.wait_until_no_processes(spec.kernel_id)


async def test_restarted_agent_reports_a_kernel_once_it_has_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = h.kernel("sleep", "60")
    go = asyncio.Event()
    observe = ProcessRuntime.observe

    async def late(self: ProcessRuntime, handle: Handle) -> RuntimeObservation:
        await go.wait()
        return await observe(self, handle)

    async with h.run_fake_manager() as manager:
        async with h.make_agent(manager, tmp_path):
            manager.order(spec)
            await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)

        before = len(manager.reports)
        monkeypatch.setattr(ProcessRuntime, "observe", late)
        async with h.make_agent(manager, tmp_path):
            report = await manager.wait_for_report(lambda r: len(manager.reports) > before)
            assert _state(report, spec.kernel_id) is S.UNKNOWN
            go.set()
            await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
            assert set(_reported(manager, spec.kernel_id)[before:]) == {S.UNKNOWN, S.RUNNING}
            manager.order()
            await h.wait_until_no_processes(spec.kernel_id)


def _state(report: Any, kernel_id: KernelId) -> S | None:
    found = h.find_kernel(report, kernel_id)
    return found.state if found is not None else None


def _reported(manager: h.FakeManager, kernel_id: KernelId) -> list[S | None]:
    return [_state(report, kernel_id) for report in manager.reports]
