"""Deterministic simulation: managers, nodes and users over one database, in virtual time, with
faults.

The same seed produces the same run. ``run`` takes ``STEPS`` random steps and checks the invariants
between them. Then the faults end, time passes, and every session must have reached a correct state.
Finally everything is stopped, and nothing may remain.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from moorage.common.model.ids import KernelId
from moorage.common.model.templates import TemplateSpec
from moorage.manager.identity.scope import Scope

from .automation import Automation
from .database import FAULT_NAMES, Operation, Postgres, draw_fault
from .faults import Faults
from .interleaving import Interleaving
from .invariants import Invariants
from .manager import ManagerProcess, Stream
from .node import Node
from .pipelines import Pipelines
from .programs import Programs
from .restores import Backup, Restores
from .workload import Workload

STEPS = 45
CHECK_EVERY = 9
FOREVER_S = 1e9


class Simulation(
    Interleaving, Pipelines, Automation, Workload, Programs, Faults, Restores, Invariants
):
    """``log``: a text record of the run, the same for the same seed."""

    def __init__(self, seed: int, postgres: Postgres) -> None:
        self.seed = seed
        self.postgres = postgres
        self.rng = random.Random(seed)
        self.scheduling_rng = random.Random(seed + 2) if seed % 3 == 0 else None
        self.log: list[str] = []

        # In a third of the seeds one kind of clock jumps: the database's or the managers'.
        self.clock_rng = random.Random(seed + 3) if seed % 3 == 1 else None
        self.restore_rng = random.Random(seed + 4) if seed % 3 == 2 else None

        # In a sixth of the seeds transactions of different managers interleave.
        self.interleaving_rng = random.Random(seed + 5) if seed % 6 == 3 else None
        # In a fifth of the seeds nodes hold leases, and most programs have one.
        self.lease_rng = random.Random(seed + 6) if seed % 5 == 3 else None

        # In a quarter of the seeds users make the same requests again and again.
        self.update_rng = random.Random(seed + 9) if seed % 3 == 2 else None
        self.reuse_rng = random.Random(seed + 7) if seed % 4 == 1 else None
        # In a quarter of the seeds users submit pipelines and start sessions from templates.
        self.pipeline_rng = random.Random(seed + 8) if seed % 4 == 3 else None
        self.pipelines: list[str] = []
        self.versions: dict[str, TemplateSpec] = {}

        # In a quarter of the seeds only a few sessions may be placed at a time.
        self.quota = 2 if seed % 4 == 2 else None
        self.held: ManagerProcess | None = None
        self.backup: Backup | None = None
        self.seen_before_restore: dict[str, int] = {}
        self.keep_unknown = True
        self.id_rng = random.Random(seed + 1)
        self.manager_count = 0
        self.begin_automation(seed)
        count = self.rng.choice([1, 2, 2])
        self.managers = [
            self.new_manager(n) for n in range(count if self.interleaving_rng is None else 2)
        ]
        self.started_on: dict[KernelId, str] = {}
        self.forgotten: set[KernelId] = set()  # their node can no longer know that they have run
        self.nodes = [self.new_node(n) for n in range(self.rng.choice([1, 2, 2, 3]))]
        self.streams: list[Stream] = []
        self.acknowledged: set[str] = set()
        self.overlapping: set[str] = set()
        self.sessions: list[str] = []
        self.endpoints: list[str] = []
        self.faults = True
        self.lost_node: Node | None = None

    def new_node(self, n: int) -> Node:
        return Node(
            f"node-{n}", self.rng.choice([1, 2, 2]), lambda: self.postgres.time,
            lambda: f"inc-{self.id_rng.getrandbits(64):016x}", self.note_start, self.lease_rng is not None,
        )  # fmt: skip

    def new_manager(self, n: int) -> ManagerProcess:
        self.manager_count += 1
        manager = ManagerProcess(
            f"manager-{n}.{self.manager_count}",
            self.postgres,
            self.id_rng,
            keep_unknown=self.keep_unknown,
            keys=self.keys,
        )
        self.automate(manager)
        return manager

    def record(self, text: str) -> None:
        self.log.append(f"{self.postgres.time:8.1f} s  {text}")

    # The run.

    async def run(self, steps: int = STEPS) -> None:
        # Programs with a lease start and keep running only if messages arrive in time, and a backup
        # lacks only the work that has started since.
        silences, calms = (1, 0) if self.lease_rng is None else (3, 5)
        calms = calms or 4 * (self.restore_rng is not None)
        actions = {
            self.run_most: 14, self.create_session: 8, self.act_as_user: 5, self.send_node_report: 3,
            self.deliver_report: 5, self.prepare_orders: 4, self.deliver_orders: 5, self.run_loop: 8,
            self.advance_time: 3, self.fault_node: 5, self.fault_stream: 4, self.fault_manager: 4,
            self.expire_silent_agents: silences, self.run_undisturbed: calms, self.replace_node: 1,
            self.preempt_session: 3, self.act_on_pipelines: 16 * (self.pipeline_rng is not None),
        }  # fmt: skip
        for node in self.nodes:
            self.connect(node)

        if self.quota is not None:
            await self.postgres.fetch(
                "INSERT INTO quotas (scope, name, sessions, changed_by) "
                "VALUES ('group', 'default', $1, 'root')",
                self.quota,
            )

        await self.create_automation()
        for n in range(steps):
            await self.rng.choices(list(actions), list(actions.values()))[0]()
            await self.restart_crashed()
            if self.clock_rng is not None and self.clock_rng.random() < 0.1:
                await self.jump_clock(self.clock_rng)
            if self.restore_rng is not None and self.restore_rng.random() < 0.15:
                await self.fault_database()

            for manager in self.managers:
                if manager.paused and self.rng.random() < 0.15:
                    await self.resume(manager)

            if n % CHECK_EVERY == CHECK_EVERY - 1:
                await self.check_always(FOREVER_S)

        await self.end_faults()
        await self.converge()
        await self.stop_everything()

    async def end(self) -> None:
        """Crash all managers, so nothing keeps running."""
        for manager in self.managers:
            await manager.crash()

    async def restart_crashed(self) -> None:
        """The service manager starts crashed managers again."""
        for n, manager in enumerate(self.managers):
            if manager.crashed:
                await manager.crash()
                self.managers[n] = self.new_manager(n)
                self.record(f"{manager.name} crashed; {self.managers[n].name} starts")

    async def operate(self, manager: ManagerProcess, label: str, work: Callable[[], Any]) -> Any:
        if any(operation.label == label for operation in manager.paused):
            return None  # a loop does not overlap with itself

        fault, at = draw_fault(self.rng) if self.faults else (None, 0)
        operation = Operation(label, fault, at)
        self.keep_open(manager, operation)
        result = await manager.execute(operation, work())
        happened = fault is not None and operation.count > at
        suffix = f", {FAULT_NAMES[fault]} statement {at}" if fault is not None and happened else ""
        self.record(f"{manager.name}: {label}{suffix}")

        return result

    # The links.

    def connect(self, node: Node, avoid: ManagerProcess | None = None) -> None:
        others = [m for m in self.managers if m is not avoid]
        stream = Stream(node, self.rng.choice(others or self.managers), number=node.next_stream())
        self.streams.append(stream)
        stream.send_report()
        self.record(f"{node.name} connects to {stream.manager.name}")

    def open_streams(self) -> list[Stream]:
        return [s for s in self.streams if s.open and s.node.up and not s.manager.crashed]

    def reconnect_if_broken(self, node: Node) -> None:
        if node.up and not any(s.node is node for s in self.open_streams()):
            for stream in self.streams:
                if stream.node is node:
                    stream.open = False
            self.connect(node)

    async def send_node_report(self) -> None:
        node = self.rng.choice(self.nodes)
        node.step()
        if not node.up:
            return

        self.reconnect_if_broken(node)
        for stream in self.open_streams():
            if stream.node is node:
                stream.send_report()
                states = {o.kernel_id[-4:]: o.state.value for o in node.observations()}
                self.record(f"{node.name} reports {states} at generation {node.applied_generation}")

    async def deliver_report(self, chosen: Stream | None = None) -> None:
        busy = {(s.manager, s.node.name) for s in self.streams if s.busy}
        ready = [
            s for s in self.streams
            if s.up and not s.manager.crashed and (s.manager, s.node.name) not in busy
            and s.manager is not self.held
            and s.delayed_until <= self.postgres.time
        ]  # fmt: skip
        if chosen is None and ready:
            chosen = self.rng.choice(ready)
        if chosen is None:
            return

        stream = chosen
        manager = chosen.manager
        message = chosen.up.popleft()
        label = f"report of {stream.node.name}"
        await self.operate(manager, label, lambda: manager.apply_report(stream, message))
        if not stream.open:
            await self.check_gone_kernels()

    async def prepare_orders(self) -> None:
        manager = self.choose_manager()
        await self.operate(manager, "orders", manager.links.run_once)

    async def deliver_orders(self, chosen: Stream | None = None) -> None:
        for stream in self.open_streams():
            stream.manager.send_orders(stream)

        ready = [s for s in self.open_streams() if s.down]
        if chosen is None and ready:
            chosen = self.rng.choice(ready)
        if chosen is None:
            return

        message = chosen.down.popleft()
        self.check_generation(chosen.node, message)
        chosen.receive(message)
        node = chosen.node
        ordered = [k[-4:] for k in node.orders] if node.orders else None
        generation = node.newest_generation
        self.record(
            f"{node.name} receives orders: newest generation {generation}, kernels {ordered}"
        )
        if self.rng.random() < 0.7:
            node.step()

    # Managers and time.

    async def run_loop(self) -> None:
        manager = self.choose_manager()
        names = ["scheduler", "sessions", "replicas", "monitor", "deadlines", "collector"]
        name = self.rng.choices(names, [8, 10, 3, 2, 2, 1])[0]
        if self.lease_rng is not None and self.lease_rng.random() < 0.2:
            await self.expire_leases(manager)
            return

        if name != "sessions" and manager.leader.term is None and self.rng.random() < 0.9:
            await self.operate(manager, "leader", manager.leader.run_once)
            if manager.crashed:
                return

        await self.operate(manager, name, getattr(manager, name).run_once)

    async def expire_leases(self, manager: ManagerProcess) -> None:
        await self.operate(manager, "leases", manager.leases.run_once)
        await self.check_gone_kernels()

    async def advance_time(self) -> None:
        self.postgres.time += self.rng.choice([0.1, 0.5, 1, 3, 5, 9, 20, 65])
        self.notice_broken_streams()

    def notice_broken_streams(self) -> None:
        """Managers notice broken streams after the messages in transit have arrived."""
        for stream in self.streams:
            if not (stream.open or stream.up or stream.busy or stream.manager.crashed):
                stream.manager.disconnect(stream)

    async def expire_silent_agents(self) -> None:
        """A manager runs without faults for long enough to declare silent agents LOST."""
        manager = self.rng.choice(self.managers)
        self.record("no faults while silent agents expire")
        self.faults = False
        for _ in range(8):
            self.postgres.time += 8
            await self.operate(manager, "leader", manager.leader.run_once)
            await self.operate(manager, "monitor", manager.monitor.run_once)
            await self.expire_leases(manager)

        await self.operate(manager, "sessions", manager.sessions.run_once)
        self.faults = True

    async def run_undisturbed(self) -> None:
        self.record("no faults for a while")
        self.faults = False
        for _ in range(3):
            await self.run_all(1)
        self.faults = True

    async def run_most(self) -> None:
        """Run most of the components, in random order."""
        self.postgres.time += self.rng.choice([0.2, 1, 2, 4])
        if self.rng.random() < 0.3:
            self.notice_broken_streams()

        manager = self.rng.choice(self.managers)
        work: list[Callable[[], Awaitable[None]]] = [self.send_node_report] * len(self.nodes)
        work += [self.deliver_report] * 3 + [self.deliver_orders] * 3
        if manager.leader.term is None:
            await self.operate(manager, "leader", manager.leader.run_once)

        work += [
            lambda run=run, name=name: self.operate(manager, name, run)  # type: ignore[misc]
            for name, run in (
                ("scheduler", manager.scheduler.run_once),
                ("sessions", manager.sessions.run_once),
                ("replicas", manager.replicas.run_once),
                ("beats", manager.store.reports.write_heartbeats),
                *self.automation_loops(manager),
            )
        ]
        work += [lambda m=m: self.operate(m, "orders", m.links.run_once) for m in self.managers]  # type: ignore[misc]
        self.rng.shuffle(work)

        for action in work:
            if self.rng.random() < 0.8:
                await action()
                await self.restart_crashed()
                if manager.crashed:
                    return

    async def run_automation(self, seconds: float) -> None:
        self.postgres.time += seconds
        for manager in self.managers:
            await self.operate(manager, "leader", manager.leader.run_once)
        for manager in self.managers:
            for name, run in self.automation_loops(manager):
                await self.operate(manager, name, run)

    # After the faults.

    async def end_faults(self) -> None:
        """Paused operations resume and crashed processes restart."""
        self.record("-- faults end --")
        self.faults = False
        for manager in self.managers:
            manager.clock.skew = 0
            while manager.paused:
                await manager.resume(manager.paused[0])

        await self.restart_crashed()
        for node in self.nodes:
            node.end_faults()

        if len(self.nodes) > 1 and self.rng.random() < 0.3:
            # The node with the most kernels is lost: every session that ran there must report the
            # loss.
            self.lost_node = max(self.nodes, key=lambda n: sum(k.alive for k in n.runtime.values()))
            self.nodes.remove(self.lost_node)
            self.lost_node.crash()
            self.record(f"{self.lost_node.name} never restarts")

        for stream in self.streams:
            if stream.node is self.lost_node:
                stream.open = False
        for node in self.nodes:
            if not node.up:
                node.restart()

    async def run_all(self, seconds: float) -> None:
        """Let time pass, and run every component once. In reality each would run many times."""
        self.postgres.time += seconds
        for node in self.nodes:
            node.step()
            self.reconnect_if_broken(node)
            for stream in [s for s in self.open_streams() if s.node is node]:
                stream.send_report()

        for stream in list(self.streams):
            while stream.up and not stream.manager.crashed:
                await self.deliver_report(stream)

            if not stream.open:
                stream.manager.disconnect(stream)  # the keepalives time out

        for manager in self.managers:
            await self.operate(manager, "leader", manager.leader.run_once)
            await self.operate(manager, "beats", manager.store.reports.write_heartbeats)

        manager = next((m for m in self.managers if m.leader.term is not None), self.managers[0])
        for m in self.managers:
            await self.operate(m, "clock", m.deadlines.run_once)

        loops = [
            (loop.loop.name, loop.run_once)
            for loop in (
                manager.monitor, manager.collector, manager.sessions, manager.replicas, manager.scheduler
            )
        ]  # fmt: skip
        for name, run in (*loops, *self.automation_loops(manager)):
            await self.operate(manager, name, run)

        await self.expire_leases(manager)
        for manager in self.managers:
            await self.operate(manager, "orders", manager.links.run_once)

        for stream in self.open_streams():
            stream.manager.send_orders(stream)
            while stream.down:
                await self.deliver_orders(stream)

        self.streams = self.open_streams()

    async def converge(self) -> None:
        await self.end_unknown_kernels()
        # Short steps come first, because only a manager that has run long enough may declare an
        # agent LOST.
        for seconds in (1, *(8,) * 9):
            await self.run_all(seconds)

        if self.clock_rng is None:
            await self.check_lost_agents()

        await self.replace_nodes()
        await self.retry_pipelines()

        # A clock that was set back makes deadlines late.
        late = (4000, *(8,) * 9, 65, 65) if self.clock_rng is not None else ()
        for seconds in (1, 3, 40, 65, 65, 65, *late):
            await self.run_all(seconds)

        await self.replace_nodes()
        for seconds in (65, 65, 5, 5):
            await self.run_all(seconds)

        await self.check_always(60)
        self.check_orders()
        await self.check_kernels()
        await self.check_sessions()
        await self.check_mirrors()
        await self.check_pipelines_ended()

    async def stop_everything(self) -> None:
        self.record("-- stop everything --")
        store = self.managers[0].store
        if self.automation_rng is not None:
            await self.postgres.fetch("UPDATE cron_jobs SET suspended = true, next_at = NULL")
            for _ in range(3):  # runs that were recorded start
                await self.run_all(8)

        for row in await self.postgres.fetch("SELECT name FROM endpoints WHERE deleted_at IS NULL"):
            await store.endpoints.delete(Scope.system(), row["name"])

        for row in await self.postgres.fetch(
            "SELECT id FROM sessions WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        ):
            await self.managers[0].terminator.stop(Scope.system("user"), row["id"])

        for seconds in (1, 3, 8, 25, 65, 1, 1):
            await self.run_all(seconds)

        await self.check_always(10)
        await self.check_nothing_remains()
        await self.check_automation(self.run_automation)
