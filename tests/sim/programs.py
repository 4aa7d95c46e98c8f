"""Programs in the deterministic simulation: their counts, and the loss of the nodes on which they
run.

A program belongs to a session, regardless of the attempt and the kernel id.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.manager.scheduling.core.results import Victim

from .database import Postgres
from .manager import ManagerProcess, Stream
from .node import Node, Violation


def program(spec: KernelSpec) -> tuple[SessionId, str]:
    """A session's program in any attempt."""
    return spec.session_id, spec.cluster.hostname if spec.cluster else "main1"


class Programs:
    """``forgotten``: kernels that their node can no longer know about."""

    rng: random.Random
    postgres: Postgres
    managers: list[ManagerProcess]
    nodes: list[Node]
    streams: list[Stream]
    lost_node: Node | None
    started_on: dict[KernelId, str]
    forgotten: set[KernelId]
    overlapping: set[str]

    def choose_manager(self, rng: random.Random | None = None) -> ManagerProcess:
        raise NotImplementedError

    async def operate(self, manager: ManagerProcess, label: str, work: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def record(self, text: str) -> None:
        raise NotImplementedError

    def note_start(self, spec: KernelSpec, node: str) -> None:
        kernel_id = spec.kernel_id
        if kernel_id in self.started_on and kernel_id not in self.forgotten:
            raise Violation(
                f"kernel {kernel_id} was started on {self.started_on[kernel_id]}, and again on {node}"
            )

        self.started_on[kernel_id] = node
        if spec.session_name in self.overlapping or spec.endpoint_id is not None:
            return

        for other in [*self.nodes, *([self.lost_node] if self.lost_node else [])]:
            for running, other_spec in other.programs().items():
                if running != kernel_id and program(other_spec) == program(spec):
                    kernels = f"kernel {running} on {other.name} and kernel {kernel_id} on {node}"
                    raise Violation(f"a program runs twice: {spec.session_name}, {kernels}")

    async def preempt_session(self) -> None:
        """As for a session with a higher priority, or for a drain."""
        rows = await self.postgres.fetch(
            "SELECT id, name FROM sessions WHERE status IN ('SCHEDULED', 'CREATING', 'RUNNING') ORDER BY name"
        )
        manager = self.choose_manager()
        if rows and manager.leader.term is None:
            await self.operate(manager, "leader", manager.leader.run_once)

        term = manager.leader.term
        if not rows or term is None or manager.crashed:
            return

        row = self.rng.choice(rows)
        victim = Victim(row["id"], SessionId("another"), "requeue", 0)
        await self.operate(
            manager, f"preempt {row['name']}", lambda: manager.terminator.preempt([victim], term)
        )

    async def replace_node(self) -> None:
        """An administrator replaces a node whose agent is away, and declares the old one
        destroyed."""
        missing = [node for node in self.nodes if not node.up]
        if missing:
            await self.declare_destroyed(self.rng.choice(missing))

    async def replace_nodes(self) -> None:
        """After the faults, this concerns nodes that never return, and nodes that returned as
        another agent."""
        rows = await self.postgres.fetch("SELECT id, identity FROM agents")
        known = {row["id"]: row["identity"] for row in rows}
        for node in [*self.nodes, *([self.lost_node] if self.lost_node else [])]:
            if node is self.lost_node or known.get(node.name, "") not in ("", node.identity):
                await self.declare_destroyed(node)

    async def declare_destroyed(self, node: Node) -> None:
        was_up = node.up
        manager = self.rng.choice(self.managers)
        self.forgotten |= {k for k in node.runtime if k not in node.checkpoint}
        node.reboot()
        for stream in self.streams:
            if stream.node is node:
                stream.open = False

        self.record(f"{node.name} is destroyed and replaced")
        await self.operate(
            manager, f"forget {node.name}",
            lambda: manager.store.agents.forget(node.name, actor="root", destroyed=True),
        )  # fmt: skip
        if was_up:
            node.restart()
