"""How an agent ends: what it does with its kernels, and what its manager hears of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import agent_harness as h
import pytest_asyncio

from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S


@pytest_asyncio.fixture
async def boss() -> AsyncIterator[h.Manager]:
    async with h.manager() as boss:
        yield boss


async def test_an_orderly_end_ends_kernels_if_told_so(boss: h.Manager, tmp_path: Path) -> None:
    polite, stubborn = h.kernel("sleep", "3600"), h.kernel("sh", "-c", "trap '' TERM; echo up; sleep 3600")
    stubborn = replace(stubborn, stop_grace_s=0.3)
    async with h.make_agent(boss, tmp_path, stop_kernels_on_exit=True):
        boss.order(polite, stubborn)
        for spec in (polite, stubborn):
            await boss.until_kernel(spec.kernel_id, S.RUNNING)
    for spec in (polite, stubborn):
        assert list(h.processes(spec.kernel_id)) == []
    assert boss.last.draining
    assert [(k.state, k.reason) for k in boss.last.kernels] == [(S.EXITED, Reason.AGENT_SHUTDOWN)] * 2


async def test_an_agent_that_was_given_no_orders_yet_says_goodbye(boss: h.Manager, tmp_path: Path) -> None:
    async with h.make_agent(boss, tmp_path):
        await boss.until(lambda report: True)
    assert boss.last.draining
