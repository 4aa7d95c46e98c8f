"""Recovery of an agent's link from failures on either side, and what operators see of a failing
task."""

from __future__ import annotations

import asyncio
from pathlib import Path

import agent_harness as h
import aiohttp
import grpc
import pytest
from manager_harness import attach, manager

from moorage.agent import Agent
from moorage.common.aio import supervisor
from moorage.common.link.messages import Report, ReportDelta
from moorage.manager import Manager
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.store.platform.reports import ReportStore

__all__ = ["manager"]  # a fixture


async def test_agent_whose_report_fails_connects_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the sender, the stream would stay open and the agent silent."""
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)
    made = 0
    report = Agent.report

    def failing(agent: Agent, whole: bool = True) -> Report | ReportDelta:
        nonlocal made
        made += 1
        if made == 3:
            raise RuntimeError("a bug in the report")
        return report(agent, whole)

    monkeypatch.setattr(Agent, "report", failing)
    async with h.connected_agent(tmp_path) as manager, asyncio.timeout(30):
        while made < 8:
            await asyncio.sleep(0.05)

        assert manager.streams == 2
        orders = manager.order()
        await manager.wait_for_report(lambda r: r.orders_generation == orders.generation)


async def test_report_that_cannot_be_applied_ends_the_stream(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent notices that and reconnects. Other agents are not affected."""
    apply = ReportStore.apply
    applied = 0

    async def apply_or_fail(store: ReportStore, update: AgentUpdate) -> int:
        nonlocal applied
        applied += 1
        if applied == 2:
            raise RuntimeError("a bug in the report")
        return await apply(store, update)

    monkeypatch.setattr(ReportStore, "apply", apply_or_fail)
    async with attach(manager) as agent, asyncio.timeout(30):
        await agent.next()
        await agent.report()
        assert await agent.end() is grpc.StatusCode.UNKNOWN

    async with attach(manager) as agent, asyncio.timeout(30):
        await agent.next()
        await agent.report()
        while applied < 4:
            await asyncio.sleep(0.01)


async def test_failing_task_is_shown_in_readyz_and_metrics(manager: Manager) -> None:
    async def work() -> None:
        raise ValueError("bad weather")

    task = supervisor.SupervisedTask("loop.example", work)
    async with aiohttp.ClientSession(f"http://{manager.api_address}") as http, asyncio.timeout(30):
        while "loop.example" not in supervisor.problems():
            await asyncio.sleep(0.02)

        async with http.get("/readyz") as response:
            health = await response.json()
            assert (response.status, health["status"]) == (200, "degraded")
            assert "bad weather" in health["checks"]["loop.example"]

        async with http.get("/metrics") as response:
            text = await response.text()

        assert 'moorage_task_failing{task="loop.example"} 1.0' in text
        assert 'moorage_task_failures_total{task="loop.example"}' in text

    await task.close()
