"""Deltas on the agent link: both ends follow, and drift is noticed and mended by sending the whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import agent_harness as h
import pytest_asyncio

from moorage.common.link.messages import Orders, OrdersDelta, WholeReportWanted
from moorage.common.link.sync import OrdersSender
from moorage.common.model.status import ObservedState as S


@pytest_asyncio.fixture
async def boss() -> AsyncIterator[h.Manager]:
    async with h.manager() as boss:
        yield boss


async def test_an_agent_says_only_what_changed(boss: h.Manager, tmp_path: Path) -> None:
    async with h.make_agent(boss, tmp_path):
        await boss.until(lambda r: True)
        assert boss.deltas == 0, "the first report of a stream is whole"
        spec = h.kernel("sleep", "3600")
        boss.order(spec)
        await boss.until_kernel(spec.kernel_id, S.RUNNING)
        assert boss.deltas > 0
        boss.say(WholeReportWanted())
        before = len(boss.reports) - boss.deltas
        await boss.until(lambda r: len(boss.reports) - boss.deltas > before)
        assert [k.kernel_id for k in boss.last.kernels] == [spec.kernel_id]
        boss.order()
        await boss.until(lambda r: not r.kernels)


async def test_orders_as_deltas_are_obeyed_and_drift_is_asked_about(boss: h.Manager, tmp_path: Path) -> None:
    one, two = h.kernel("sleep", "3600"), h.kernel("sleep", "3600")
    out = OrdersSender()
    async with h.make_agent(boss, tmp_path):
        await boss.until(lambda r: True)
        boss.say(out.next_message(Orders(1, (one,))))
        second = out.next_message(Orders(2, (one, two)))
        assert isinstance(second, OrdersDelta)
        assert second.added == (two,)
        boss.say(second)
        await boss.until(lambda r: {k.state for k in r.kernels} == {S.RUNNING} and len(r.kernels) == 2)
        third = out.next_message(Orders(3, (two,)))
        assert isinstance(third, OrdersDelta)
        boss.say(OrdersDelta(3, 7, third.added, third.withdrawn, third.digest))  # upon what was never said
        report = await boss.until(lambda r: r.orders_wanted)
        assert (report.orders_generation, len(report.kernels)) == (2, 2), "nothing was done on a guess"
        boss.say(Orders(4, (two,)))
        await boss.until(
            lambda r: not r.orders_wanted and [k.kernel_id for k in r.kernels] == [two.kernel_id]
        )
        boss.say(Orders(5, ()))
        await boss.until(lambda r: not r.kernels)
