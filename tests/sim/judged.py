"""What must hold in the world: after every few steps, when the faults have ended, and when all is stopped."""

from __future__ import annotations

import random

from moorage.common.model.status import WANTED, Status

from .database import Postgres
from .managers import ManagerLife
from .node import Node, Violation


class Judged:
    """A world that can be looked at. Each look raises ``Violation``."""

    postgres: Postgres
    ids: random.Random
    managers: list[ManagerLife]
    nodes: list[Node]
    gone: Node | None
    acknowledged: set[str]

    async def look(self, grace_s: float) -> None:
        # A look is not a manager's: it meets no fault, and no dead process.
        observer = ManagerLife("observer", self.postgres, self.ids)
        found = await observer.store.check(grace_s=grace_s)
        if found:
            raise Violation("; ".join(f"{d.check}: {d.subject}: {d.detail}" for d in found))
        rows = await self.postgres.fetch("SELECT id FROM sessions")
        missing = self.acknowledged - {row["id"] for row in rows}
        if missing:
            raise Violation(f"acknowledged sessions are missing: {missing}")
        await self.look_at_the_gone()
        await self.look_at_clusters()

    async def look_at_the_gone(self) -> None:
        """What is written down as gone is not there any more: no word from before a kernel ends it."""
        rows = await self.postgres.fetch("SELECT id, agent_id, reason FROM kernels WHERE observed = 'GONE'")
        gone = {row["id"]: f"{row['agent_id']} ({row['reason']})" for row in rows}
        for node in self.nodes:
            for kernel_id, kernel in node.runtime.items():
                if kernel.alive() and kernel_id in gone:
                    raise Violation(f"kernel {kernel_id} runs on {node.name}, gone says {gone[kernel_id]}")

    async def look_at_clusters(self) -> None:
        """All kernels of a start are placed or none is: on one agent, or each on its own."""
        rows = await self.postgres.fetch(
            "SELECT s.name, k.attempt, s.spec #>> '{cluster,mode}' AS mode, "
            "(s.spec #>> '{cluster,size}')::int AS size, count(k.agent_id) AS placed, "
            "count(DISTINCT k.agent_id) AS agents FROM kernels k "
            "JOIN sessions s ON s.id = k.session_id WHERE s.spec ? 'cluster' GROUP BY s.id, k.attempt"
        )
        for row in rows:
            agents = row["size"] if row["mode"] == "multi-node" else 1
            if row["placed"] and (row["placed"], row["agents"]) != (row["size"], agents):
                raise Violation(f"a cluster in parts: {dict(row)}")

    async def look_at_kernels(self) -> None:
        """What runs is wanted, and what is RUNNING runs."""
        rows = await self.postgres.fetch("SELECT id, status FROM kernels WHERE status <> 'PENDING'")
        statuses = {row["id"]: Status(row["status"]) for row in rows}
        alive = {k: n.name for n in self.nodes for k, kernel in n.runtime.items() if kernel.alive()}
        for kernel_id, node in alive.items():
            if statuses.get(kernel_id) not in (*WANTED, Status.TERMINATING):
                raise Violation(f"kernel {kernel_id} runs on {node} and is {statuses.get(kernel_id)}")
        for kernel_id, status in statuses.items():
            if status is Status.RUNNING and kernel_id not in alive:
                raise Violation(f"kernel {kernel_id} is RUNNING and nowhere")

    async def look_at_ends(self) -> None:
        """Nothing waits for what cannot come, and what ended says why."""
        rows = await self.postgres.fetch(
            "SELECT s.name, s.status, s.hold, s.reason, s.attempt, s.deadline_at FROM sessions s "
            "WHERE s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        )
        for row in rows:
            if row["status"] == Status.PENDING and row["hold"] is not None and row["deadline_at"] is None:
                refusals = row["hold"]["refusals"]
                if refusals and all("avoided" in refusal for refusal in refusals):
                    raise Violation(f"session {row['name']} waits for ever: {refusals}")
        ended = await self.postgres.fetch(
            "SELECT name FROM sessions WHERE status IN ('TERMINATED', 'CANCELLED', 'ERROR') AND reason = ''"
        )
        if ended:
            raise Violation(f"sessions ended without a reason: {[row['name'] for row in ended]}")

    async def look_for_leftovers(self) -> None:
        """All was stopped: nothing lives or is held, but what an agent that never comes back held: fenced."""
        left = await self.postgres.fetch(
            "SELECT name, status FROM sessions WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        )
        held = await self.postgres.fetch(
            "SELECT agent_id, slot, device_id, used FROM agent_slots WHERE used <> 0 AND agent_id <> $1",
            self.gone.name if self.gone is not None else "",
        )
        running = {n.name: list(n.runtime) for n in self.nodes if n.runtime}
        if left or held or running:
            raise Violation(f"left over: sessions {left}, slots {held}, kernels {running}")
