"""Guards of the statement that ends kernels of silent agents: which kernels it ends, which it
leaves, and in which state."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import asyncpg
import pytest

from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.reasons import Reason
from moorage.manager.lifecycle.kernel_leases import LeasedKernel
from moorage.manager.store import Store

from .statement_rows import LONG_AGO, agents, kernel, rows, session
from .test_leader_writes import until_it_waits

SILENCE = "agent {} had no contact with a manager for the lease of 30 s"


class Silence:
    """Agents: ``silent`` and ``back`` were heard from two hours ago, ``later`` and ``heard`` one
    hour ago. ``back`` is nevertheless ALIVE."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.kernels: dict[str, KernelId] = {}
        self.leases: list[LeasedKernel] = []
        self.before: dict[str, dict[str, object]] = {}

    async def begin(self) -> None:
        await agents(self.store, "silent", "back", "later", "heard")
        await self.store.database.fetch(
            "UPDATE agents SET status = CASE WHEN id = 'back' THEN 'ALIVE' ELSE 'SUSPECT' END, "
            "last_seen = now() - interval '1 hour' * CASE WHEN id IN ('silent', 'back') THEN 2 ELSE 1 END"
        )
        self.owner = await session(self.store, "job")
        self.last_seen = {
            name: row["last_seen"] for name, row in (await rows(self.store, "agents")).items()
        }

    async def add(
        self, name: str, agent: str, status: str = "RUNNING", reason: str = ""
    ) -> LeasedKernel:
        """A kernel and its lease, found after its agent had been silent since its last contact."""
        number = len(self.kernels) + 1
        made = await kernel(
            self.store,
            self.owner,
            number,
            status,
            agent=agent,
            reason=reason,
            lease_s=30.0,
            detail="before",
        )
        self.kernels[name] = made

        return LeasedKernel(
            made, AgentId(agent), contact=self.last_seen[agent], lease_s=30, stop_grace_s=10
        )

    async def expire(
        self, *leases: LeasedKernel, reason: Reason = Reason.LEASE_EXPIRED, detail: str = ""
    ) -> int:
        term = await self.store.leases.acquire("test", 60)
        assert term is not None
        self.before = await rows(self.store, "kernels")
        return await self.store.kernel_leases.expire(leases, term, reason, detail)

    async def ended(self) -> dict[str, tuple[str, str, str]]:
        """Status, reason and detail of the changed kernels. Nothing about the others has
        changed."""
        after = await rows(self.store, "kernels")
        found = {}
        for name, kernel_id in self.kernels.items():
            row = after[kernel_id]
            if row != self.before[kernel_id]:
                assert (row["observed"], row["status_since"] > LONG_AGO) == ("GONE", True)
                found[name] = (row["status"], row["reason"], row["detail"])
        return found


async def test_a_lease_ends_the_kernels_of_silent_agents(store: Store) -> None:
    world = Silence(store)
    await world.begin()
    named = [
        await world.add("running", "silent"),
        await world.add("failing", "silent", reason="oom"),
        await world.add("stopping", "silent", "TERMINATING", "user-requested"),
        await world.add("later", "later"),
        await world.add("back", "back"),
    ]

    # The other agents as they were when checked: heard from since, and not this kernel's agent.
    heard = replace(await world.add("heard", "heard"), contact=world.last_seen["silent"])
    elsewhere = replace(await world.add("elsewhere", "back"), agent_id=AgentId("silent"))
    for status in ("PENDING", "TERMINATED", "CANCELLED", "ERROR"):
        named.append(await world.add(status, "silent", status))

    await world.add("unnamed", "silent")
    assert await world.expire(*named, heard, elsewhere) == 4
    assert await world.ended() == {
        "running": ("ERROR", "lease-expired", SILENCE.format("silent")),
        "failing": ("ERROR", "oom", SILENCE.format("silent")),
        "stopping": ("TERMINATED", "user-requested", SILENCE.format("silent")),
        "later": ("ERROR", "lease-expired", SILENCE.format("later")),
    }


async def test_the_end_of_a_walltime_is_no_failure(store: Store) -> None:
    world = Silence(store)
    await world.begin()
    named = [
        await world.add("running", "silent"),
        await world.add("stopping", "silent", "TERMINATING", "x"),
    ]
    assert await world.expire(*named, reason=Reason.WALLTIME, detail="it is over") == 2
    assert await world.ended() == {
        "running": ("TERMINATED", "walltime", "it is over"),
        "stopping": ("TERMINATED", "x", "it is over"),
    }


@pytest.mark.parametrize("reports", [True, False])
async def test_a_report_that_is_being_stored_keeps_the_kernel(
    store: Store, migrated_database: str, reports: bool
) -> None:
    world = Silence(store)
    await world.begin()
    lease = await world.add("running", "silent")
    other = await asyncpg.connect(migrated_database)
    async with other.transaction():
        changed = "last_seen = now()" if reports else "labels = labels"
        await other.execute(f"UPDATE agents SET {changed} WHERE id = 'silent'")
        expiring = asyncio.ensure_future(world.expire(lease))
        await until_it_waits(other, expiring)

    assert await expiring == (0 if reports else 1)
    await other.close()
