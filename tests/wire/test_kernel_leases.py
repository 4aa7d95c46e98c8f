"""Kernel leases: the node stops a program that has had no contact, with or without its agent."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import agent_harness as h
import pytest
import pytest_asyncio

from moorage.common.link.messages import Contact
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S

LEASE_S = 5.0


@pytest_asyncio.fixture
async def manager() -> AsyncIterator[h.FakeManager]:
    async with h.run_fake_manager() as manager:
        yield manager


async def confirm(manager: h.FakeManager) -> None:
    """Confirm reports like a manager with a working database."""
    confirmed = 0
    while True:
        newest = max((report.sent_at for report in manager.reports), default=0)
        if newest > confirmed:
            confirmed = newest
            manager.send(Contact(newest))
        async with manager.arrived:
            await manager.arrived.wait()


def leased() -> KernelSpec:
    return h.kernel("sh", "-c", "sleep 3600", lease_s=LEASE_S, stop_grace_s=0.5)


async def test_program_runs_while_there_is_contact_and_ends_without(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    spec = leased()
    async with h.make_agent(manager, tmp_path):
        manager.order(spec)
        await manager.wait_for_kernel(spec.kernel_id, S.CREATING)
        assert not list(h.processes(spec.kernel_id)), "it does not start without contact"
        confirming = asyncio.create_task(confirm(manager))
        await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        await asyncio.sleep(LEASE_S + 2)
        assert list(h.processes(spec.kernel_id)), "its lease was renewed"
        confirming.cancel()
        ended = await manager.wait_for_kernel(spec.kernel_id, S.EXITED, timeout_s=30)
        assert ended.reason is Reason.LEASE_EXPIRED


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_lease_ends_the_program_without_its_agent(
    manager: h.FakeManager, tmp_path: Path, number: signal.Signals
) -> None:
    spec = leased()
    async with h.agent_process(manager, tmp_path) as agent:
        await manager.wait_for_report(lambda report: True)
        confirming = asyncio.create_task(confirm(manager))
        manager.order(spec)
        await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        agent.send_signal(number)
        await h.wait_until_no_processes(spec.kernel_id, timeout_s=LEASE_S + 15)
        confirming.cancel()
        with contextlib.suppress(ProcessLookupError):
            agent.kill()

        await agent.wait()

    async with h.make_agent(manager, tmp_path):  # the next agent reports how it ended
        ended = await manager.wait_for_kernel(spec.kernel_id, S.EXITED)
        assert ended.reason is Reason.LEASE_EXPIRED
