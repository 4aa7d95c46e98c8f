"""Report pauses: an overloaded manager makes agents report less often without losing a change."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import agent_harness as h
import asyncpg
from manager_harness import attach, client, manager, until

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import CommonSettings
from moorage.common.link import codec
from moorage.common.link.messages import Orders, OrdersDelta
from moorage.common.link.pb import agent_pb2
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import Status
from moorage.manager import Manager
from moorage.manager.loops.usage_writer import WAITING
from moorage.sdk import Client

__all__ = ["client", "manager"]  # fixtures


async def test_agent_pauses_between_reports_as_requested(tmp_path: Path) -> None:
    async with (
        h.run_fake_manager() as manager,
        h.make_agent(manager, tmp_path, report_interval_s=30),
    ):
        manager.report_pause_ms = 600
        kernels = [h.kernel("true") for _ in range(6)]
        for n in range(1, len(kernels) + 1):
            manager.order(*kernels[:n])
            await asyncio.sleep(0.15)  # separate changes, spread over more than one pause

        await manager.wait_for_report(
            lambda r: len(r.kernels) == len(kernels) and all(k.state is S.EXITED for k in r.kernels)
        )
        gaps = [later - earlier for earlier, later in pairwise(manager.arrived_at)]

        # The first reports precede the first orders.
        pauses = [gap for gap in gaps if gap > 0.5]
        assert len(pauses) >= 2
        assert min(gaps[-len(pauses) :]) > 0.5, gaps


async def test_agent_holds_its_usage_as_requested(tmp_path: Path) -> None:
    options = {"report_interval_s": 0.1, "stats_interval_s": 0.05}
    async with h.run_fake_manager() as manager, h.make_agent(manager, tmp_path, **options):

        async def reports(count: int) -> int:
            """How many of the next reports contain usage."""
            before = manager.usages
            goal = len(manager.reports) + count
            await manager.wait_for_report(lambda _: len(manager.reports) >= goal)
            return manager.usages - before

        await manager.wait_for_report(lambda _: True)
        manager.tell(heartbeat_ms=100)  # usage belongs in reports
        manager.order()

        for hold in (False, True, False):
            manager.tell(heartbeat_ms=100, hold_usage=hold)
            await reports(4)  # the agent has read it by then
            assert (await reports(4) == 0) == hold


async def test_manager_whose_usage_waits_makes_agents_hold_theirs(
    manager: Manager, migrated_database: str
) -> None:
    async with attach(manager) as agent:

        async def told(hold: bool) -> None:
            async with asyncio.timeout(20):
                while (await agent.call.read()).hold_usage is not hold:
                    pass

        async def send(*engines: int) -> None:
            wire = agent_pb2.UsageReport(agent_id=agent.name, incarnation="1")
            for n in engines:
                wire.engines.add(kernel_id=f"00000000-0000-0000-0000-{n:012}", running=1)
            await agent.report(usage=wire)

        await agent.next()
        blocker = await asyncpg.connect(migrated_database)
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE engine_loads")  # accepted usage cannot be written
            for begin in range(0, WAITING // 2 + 1000, 1000):
                await send(*range(begin, begin + 1000))

            await told(True)

        await blocker.close()
        telling = asyncio.create_task(told(False))
        while not telling.done():  # the answer to a report shows it once the writer has run
            await send()
            await asyncio.wait([telling], timeout=0.1)

        await telling


async def test_manager_with_a_report_backlog_requests_a_pause(
    manager: Manager, client: Client, migrated_database: str
) -> None:
    async with attach(manager) as agent:

        async def requested_pause_ms(name: str) -> int:
            """The pause in ms that the orders for a new session request."""
            await client.sessions.create(
                SessionSpec(name=name, command=["true"], resources={"cpu": 1})
            )
            while True:
                async with asyncio.timeout(10):
                    wire: Any = await agent.call.read()

                message = codec.manager_message_from_wire(wire)
                if not isinstance(message, Orders | OrdersDelta):
                    continue

                orders = agent.follow(message)
                if any(kernel.session_name == name for kernel in orders.kernels):
                    return int(wire.report_pause_ms)

        assert await requested_pause_ms("before-backlog") == 0
        agent.see(S.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
        blocker = await asyncpg.connect(migrated_database)
        async with blocker.transaction():
            # blocks report processing
            await blocker.execute("SELECT FROM agents FOR UPDATE")
            await agent.report()
            await asyncio.sleep(0.6)

        await blocker.close()
        await until(client, "before-backlog", lambda v: v.status is Status.TERMINATED)
        assert 50 <= await requested_pause_ms("after-backlog") <= 400


async def test_kernel_that_ends_between_two_reports_counts_as_run(
    manager: Manager, client: Client
) -> None:
    async with attach(manager) as agent:
        await client.sessions.create(
            SessionSpec(name="short", command=["true"], resources={"cpu": 1})
        )
        await agent.orders_with(1)
        agent.see(S.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
        await agent.report()
        view = await until(client, "short", lambda v: v.status is Status.TERMINATED)
        assert view.result == "SUCCESS"
        assert [e.event for e in await client.sessions.history("short")] == [
            "created",
            "placed",
            "ready",
            "ended",
        ]


class Latest(SystemClock):
    """Draws the longest random delays."""

    def jitter(self, spread: float) -> float:
        return 1 + spread


async def test_agents_of_a_large_fleet_spread_their_way_to_the_next_manager(tmp_path: Path) -> None:
    """They would all arrive at once when their manager fails."""
    async with h.run_fake_manager() as first, h.run_fake_manager() as second:
        first.order()
        second.order()
        both = f"{first.target},{second.target}"
        settings = h.agent_settings(first, report_interval_s=30).model_copy(
            update={"manager": both}
        )
        async with Agent(
            settings,
            CommonSettings(link_tls="off"),
            clock=Latest(),
            link_token=h.TOKEN,
            home=tmp_path,
        ):
            async with asyncio.timeout(20):
                while not (connected := [one for one in (first, second) if one.reports]):
                    await asyncio.sleep(0.05)

            [current] = connected
            other = second if current is first else first
            reports = len(current.reports)
            current.tell(heartbeat_ms=35_000)  # longer than its own: it reports the received one
            await current.wait_for_report(lambda _: len(current.reports) > reports)
            left_at = h.CLOCK.monotonic()
            await current.stop()
            await other.wait_for_report(lambda _: True)
            assert other.arrived_at[0] - left_at > 5, "a fifth of the interval"
