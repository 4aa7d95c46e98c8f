"""A manager that has its hands full asks agents to let news gather; agents do, and nothing is lost by it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import agent_harness as h
import asyncpg
from manager_harness import attach, client, manager, until

from moorage.common.link import codec
from moorage.common.link.messages import Orders
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import Status
from moorage.manager import Manager
from moorage.sdk import Client

__all__ = ["client", "manager"]  # fixtures


async def test_an_agent_rests_between_reports_as_its_manager_asks(tmp_path: Path) -> None:
    async with h.run_fake_manager() as manager, h.make_agent(manager, tmp_path, report_interval_s=30):
        manager.report_rest_ms = 600
        kernels = [h.kernel("true") for _ in range(6)]
        for n in range(1, len(kernels) + 1):
            manager.order(*kernels[:n])
            await asyncio.sleep(0.15)  # each is news of its own: they are spread over more than one rest
        await manager.wait_for_report(
            lambda r: len(r.kernels) == len(kernels) and all(k.state is S.EXITED for k in r.kernels)
        )
        gaps = [later - earlier for earlier, later in pairwise(manager.arrived_at)]
        # The first reports came before the first orders did.
        rested = [gap for gap in gaps if gap > 0.5]
        assert len(rested) >= 2
        assert min(gaps[-len(rested) :]) > 0.5, gaps


async def test_a_manager_in_which_reports_wait_asks_for_a_rest(
    manager: Manager, client: Client, empty_database: str
) -> None:
    async with attach(manager) as agent:

        async def job(name: str) -> int:
            """Milliseconds of rest that the orders for a new session ask for."""
            await client.create_session(SessionSpec(name=name, command=["true"], resources={"cpu": 1}))
            while True:
                async with asyncio.timeout(10):
                    wire: Any = await agent.call.read()
                message = codec.manager_message_from_wire(wire)
                assert message is not None
                taken = agent.listening.apply(message)  # type: ignore[arg-type]
                assert isinstance(taken, Orders)
                agent.orders = taken
                if any(kernel.session_name == name for kernel in taken.kernels):
                    return int(wire.report_rest_ms)

        assert await job("at-ease") == 0
        agent.see(S.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
        busy = await asyncpg.connect(empty_database)
        async with busy.transaction():
            await busy.execute("SELECT FROM agents FOR UPDATE")  # what was reported cannot be taken in
            await agent.report()
            await asyncio.sleep(0.6)
        await busy.close()
        await until(client, "at-ease", lambda v: v.status is Status.TERMINATED)
        assert 50 <= await job("after-that") <= 400


async def test_what_ran_between_two_reports_has_run(manager: Manager, client: Client) -> None:
    async with attach(manager) as agent:
        await client.create_session(SessionSpec(name="short", command=["true"], resources={"cpu": 1}))
        await agent.orders_with(1)
        agent.see(S.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
        await agent.report()
        view = await until(client, "short", lambda v: v.status is Status.TERMINATED)
        assert view.result == "SUCCESS"
        assert [e.event for e in await client.history("short")] == ["created", "placed", "ready", "ended"]
