"""Deltas on the agent link: both ends follow, and drift is repaired by a full message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import agent_harness as h
import pytest_asyncio

from moorage.common.link.messages import FullReportRequest, Orders, OrdersDelta
from moorage.common.link.sync import OrdersSender
from moorage.common.model.status import ObservedState as S


@pytest_asyncio.fixture
async def manager() -> AsyncIterator[h.FakeManager]:
    async with h.run_fake_manager() as manager:
        yield manager


async def test_agent_reports_only_changes(manager: h.FakeManager, tmp_path: Path) -> None:
    async with h.make_agent(manager, tmp_path):
        await manager.wait_for_report(lambda r: True)
        assert manager.deltas == 0, "the first report of a stream is full"
        spec = h.kernel("sleep", "3600")
        manager.order(spec)
        await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        assert manager.deltas > 0
        manager.send(FullReportRequest())
        before = len(manager.reports) - manager.deltas
        await manager.wait_for_report(lambda r: len(manager.reports) - manager.deltas > before)
        assert [k.kernel_id for k in manager.last_report.kernels] == [spec.kernel_id]
        manager.order()
        await manager.wait_for_report(lambda r: not r.kernels)


async def test_order_deltas_are_applied_and_drift_is_reported(manager: h.FakeManager, tmp_path: Path) -> None:
    one, two = h.kernel("sleep", "3600"), h.kernel("sleep", "3600")
    sender = OrdersSender()
    async with h.make_agent(manager, tmp_path):
        await manager.wait_for_report(lambda r: True)
        manager.send(sender.next_message(1, {one.kernel_id: one}))
        second = sender.next_message(2, {k.kernel_id: k for k in (one, two)})
        assert isinstance(second, OrdersDelta)
        assert second.added == (two,)
        manager.send(second)
        await manager.wait_for_report(
            lambda r: {k.state for k in r.kernels} == {S.RUNNING} and len(r.kernels) == 2
        )
        third = sender.next_message(3, {two.kernel_id: two})
        assert isinstance(third, OrdersDelta)
        manager.send(OrdersDelta(3, 7, third.added, third.withdrawn, third.digest))  # its base was never sent
        report = await manager.wait_for_report(lambda r: r.orders_wanted)
        assert (report.orders_generation, len(report.kernels)) == (2, 2), "a mismatched delta changes nothing"
        manager.send(Orders(4, (two,)))
        await manager.wait_for_report(
            lambda r: not r.orders_wanted and [k.kernel_id for k in r.kernels] == [two.kernel_id]
        )
        manager.send(Orders(5, ()))
        await manager.wait_for_report(lambda r: not r.kernels)
