"""Faults in the deterministic simulation: nodes, streams and managers fail, and clocks jump."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from moorage.common.model.ids import KernelId

from .database import Postgres
from .manager import ManagerProcess, Stream
from .node import Node


class Faults:
    seed: int
    postgres: Postgres
    rng: random.Random
    managers: list[ManagerProcess]
    nodes: list[Node]
    streams: list[Stream]
    forgotten: set[KernelId]
    faults: bool

    async def operate(self, manager: ManagerProcess, label: str, work: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def record(self, text: str) -> None:
        raise NotImplementedError

    def connect(self, node: Node, avoid: ManagerProcess | None = None) -> None:
        raise NotImplementedError

    async def fault_node(self) -> None:
        node = self.rng.choice(self.nodes)
        if not node.up:
            node.restart()
            self.record(f"{node.name} restarts as {node.incarnation}")
            return

        fault = self.rng.choice(
            ["crash", "crash", "reboot", "lose_checkpoint", "lose_disk", "unresponsive", "resize"]
        )
        self.record(f"{node.name}: {fault}")
        if fault == "unresponsive":
            node.unresponsive_until = self.postgres.time + self.rng.choice([5, 60])
        elif fault == "resize":
            node.cpu = self.rng.choice([2000, 8000])
            node.gpus = self.rng.choice([1, 2])
        else:
            # A node that lost both a kernel and its checkpoint entry cannot know that the kernel
            # ever ran.
            if fault in ("lose_checkpoint", "lose_disk"):
                self.forgotten |= {k for k in node.checkpoint if k not in node.runtime}
            if fault == "reboot":
                self.forgotten |= {k for k in node.runtime if k not in node.checkpoint}

            getattr(node, fault)()
            for stream in self.streams:  # they break, but reports in flight may still arrive
                if stream.node is node:
                    stream.open = False

            if fault in ("crash", "lose_checkpoint") and self.rng.random() < 0.4:
                node.unresponsive_until = self.postgres.time + self.rng.choice([5, 60])
            if self.rng.random() < 0.5:
                node.restart()
                self.record(f"{node.name} restarts as {node.incarnation}")

    async def fault_stream(self) -> None:
        if not self.streams:
            return

        stream = self.rng.choice(self.streams[-4:])
        faults = ["break"] * 2 + ["move"] * 3
        faults += ["lose report", "lose orders", "duplicate report", "duplicate orders"]
        fault = self.rng.choice(faults)
        self.record(f"stream of {stream.node.name} to {stream.manager.name}: {fault}")
        messages: Any = stream.up if "report" in fault else stream.down
        if fault == "break":
            stream.open = False
            stream.down.clear()
            if self.rng.random() < 0.7:
                stream.up.clear()
        elif fault == "move" and stream.open and stream.node.up:
            # This report is delayed: by the time it arrives, another manager serves the agent and
            # has applied newer reports.
            stream.send_report()
            stream.open = False
            stream.delayed_until = self.postgres.time + self.rng.choice([5, 10, 20])
            stream.down.clear()
            self.connect(stream.node, avoid=stream.manager)
        elif messages and "lose" in fault:
            messages.popleft()
        elif messages:
            messages.append(messages[-1])

    async def fault_manager(self) -> None:
        manager = self.rng.choice(self.managers)
        if manager.paused:
            await self.resume(manager)
        elif self.rng.random() < 0.5:
            manager.clock.skew = self.rng.choice([0, 3600, -3600])
            self.record(f"{manager.name}: its clock is {manager.clock.skew} s off")
        else:
            manager.database.crashed = True

    async def jump_clock(self, rng: random.Random) -> None:
        """In each seed, one kind of clock jumps. Before the database's clock jumps, every manager
        has seen it. The clock is corrected if no manager leads, because a jump that no manager
        survives cannot be detected."""
        faults = self.faults
        self.faults = False
        manager = rng.choice(self.managers)
        if self.seed % 2:
            for _ in range(rng.choice([1, 2])):
                manager.clock.leaps += 600
                self.record(f"{manager.name}: its monotonic clock leaps")
                await self.run_loops(manager, "leader", "monitor", "sessions")
        else:
            for each in self.managers:
                await self.run_loops(each, "deadlines")

            corrected = await self.postgres.fetch("SELECT clock_jumps FROM leases")
            seconds = rng.choice([60, 600, 4000, -60, -600])
            self.postgres.offset += seconds
            self.record(f"the database's clock jumps {seconds} s")
            for _ in range(rng.choice([0, 1, 2])):
                await self.run_loops(manager, "leader", "monitor", "sessions", "replicas")
            for each in self.managers:
                await self.run_loops(each, "leader", "deadlines")

            if seconds > 0 and corrected == await self.postgres.fetch(
                "SELECT clock_jumps FROM leases"
            ):
                self.postgres.offset -= seconds

        self.faults = faults

    async def run_loops(self, manager: ManagerProcess, *names: str) -> None:
        for name in names:
            await self.operate(manager, name, getattr(manager, name).run_once)

    async def resume(self, manager: ManagerProcess) -> None:
        operation = self.rng.choice(manager.paused)
        self.record(f"{manager.name} resumes: {operation.label}")
        await manager.resume(operation)
