"""Deltas on the agent link: both ends apply them, and a full message repairs drift."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import agent_harness as h
import pytest_asyncio

from moorage.common.link.messages import FullReportRequest, Orders, OrdersDelta, Report, ReportDelta
from moorage.common.link.sync import OrdersReceiver, OrdersSender
from moorage.common.model.kernel import KernelReload, Reloaded
from moorage.common.model.status import ObservedState as S


@pytest_asyncio.fixture
async def manager() -> AsyncIterator[h.FakeManager]:
    async with h.run_fake_manager() as manager:
        yield manager


async def test_agent_reports_only_changes(manager: h.FakeManager, tmp_path: Path) -> None:
    async with h.make_agent(manager, tmp_path):
        await manager.wait_for_report(lambda r: True)
        assert manager.wholes == 1, "the first report of a stream is full"
        spec = h.kernel("sleep", "3600")
        manager.order(spec)
        await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        assert manager.deltas > 0
        manager.send(FullReportRequest())
        await manager.wait_for_report(lambda r: manager.wholes > 1)
        assert [k.kernel_id for k in manager.last_report.kernels] == [spec.kernel_id]
        manager.order()
        await manager.wait_for_report(lambda r: not r.kernels)


def test_kernel_that_is_to_reload_is_named_again() -> None:
    one = h.kernel("sleep", "3600")
    two = h.kernel("sleep", "3600")
    kernels = {k.kernel_id: k for k in (one, two)}
    sender = OrdersSender()
    receiver = OrdersReceiver()
    assert receiver.accept(sender.next_message(1, kernels))
    kernels[one.kernel_id] = again = replace(one, reload_generation=7)
    second = sender.next_message(2, kernels)
    assert isinstance(second, OrdersDelta)
    assert (second.added, second.withdrawn) == ((again,), frozenset())
    assert receiver.accept(second), "the digest is that of the same kernels"
    third = sender.next_message(3, kernels)
    assert isinstance(third, OrdersDelta)
    assert third.added == ()
    sender.force_full()
    assert receiver.accept(sender.next_message(4, kernels))
    fifth = sender.next_message(5, kernels)
    assert isinstance(fifth, OrdersDelta)
    assert fifth.added == (), "full orders named it, too"


async def test_program_reloads_by_its_orders(manager: h.FakeManager, tmp_path: Path) -> None:
    """This includes kernels that an agent finds on start, but not after it has reported them."""
    told = tmp_path / "told"
    source = f"trap 'echo again >> {told}' HUP; echo ready >> {told}; while :; do sleep 0.05; done"
    spec = replace(h.kernel("sh", "-c", source), reload=KernelReload(signal="HUP", timeout_s=20))

    async def reported(generation: int) -> Reloaded | None:
        def is_done(report: Report | ReportDelta) -> bool:
            return any(k.reload and k.reload.generation == generation for k in report.kernels)

        return (await manager.wait_for_report(is_done)).kernels[0].reload

    async def tells(text: str) -> None:
        async with asyncio.timeout(20):
            while not told.exists() or told.read_text() != text:
                await asyncio.sleep(0.02)

    async with h.make_agent(manager, tmp_path / "home"):
        manager.order(spec)
        await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        await tells("ready\n")
        manager.order(replace(spec, reload_generation=5))
        assert await reported(5) == Reloaded(5, "reloaded")
        await tells("ready\nagain\n")

    async with h.make_agent(manager, tmp_path / "home"):
        assert await reported(5) == Reloaded(5, "reloaded"), (
            "it is reported by the next run of the agent"
        )
        manager.order(replace(spec, reload_generation=6))
        assert await reported(6) == Reloaded(6, "reloaded")
        await tells("ready\nagain\nagain\n")
        manager.order()
        await manager.wait_for_report(lambda r: not r.kernels)


async def test_order_deltas_are_applied_and_drift_is_reported(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    one = h.kernel("sleep", "3600")
    two = h.kernel("sleep", "3600")
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

        # its base was never sent
        manager.send(
            OrdersDelta(3, 7, added=third.added, withdrawn=third.withdrawn, digest=third.digest)
        )
        report = await manager.wait_for_report(lambda r: r.orders_wanted)
        assert (report.orders_generation, len(report.kernels)) == (2, 2), (
            "a mismatched delta changes nothing"
        )
        manager.send(Orders(4, (two,)))
        await manager.wait_for_report(
            lambda r: not r.orders_wanted and [k.kernel_id for k in r.kernels] == [two.kernel_id]
        )
        manager.send(Orders(5, ()))
        await manager.wait_for_report(lambda r: not r.kernels)
