"""The seeded world: managers, agents and users over one database, with faults; the same seed, the same story.

``run`` plays ``STEPS`` random steps, looks at the invariants on the way, then lets the faults end and time
pass, and looks at what must have become of everything; then stops everything, and looks that nothing is left.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from moorage.common.model.ids import KernelId

from .database import Operation, Postgres, draw_fault
from .judged import Judged
from .managers import ManagerLife, Stream
from .node import Node, Violation
from .users import Users

STEPS = 45
LOOK_EVERY = 9
FOR_EVER_S = 1e9


class World(Users, Judged):
    def __init__(self, seed: int, postgres: Postgres) -> None:
        self.seed, self.postgres, self.rng = seed, postgres, random.Random(seed)
        self.dice = random.Random(seed + 2) if seed % 3 == 0 else None
        self.story: list[str] = []
        self.ids = random.Random(seed + 1)
        self.births = 0
        self.managers = [self.born(n) for n in range(self.rng.choice([1, 2, 2]))]
        self.starts: dict[KernelId, str] = {}
        self.wiped: set[KernelId] = set()
        self.nodes = [self.node(n) for n in range(self.rng.choice([1, 2, 2, 3]))]
        self.streams: list[Stream] = []
        self.acknowledged: set[str] = set()
        self.sessions: list[str] = []
        self.endpoints: list[str] = []
        self.faults = True
        self.gone: Node | None = None
        self.newcomers = False  # who lost their disk wait until those they were are given up

    def node(self, n: int) -> Node:
        return Node(
            f"node-{n}", self.rng.choice([1, 2, 2]), lambda: self.postgres.time,
            lambda: f"inc-{self.ids.getrandbits(64):016x}", self.note_start,
        )  # fmt: skip

    def born(self, n: int) -> ManagerLife:
        self.births += 1
        return ManagerLife(f"manager-{n}.{self.births}", self.postgres, self.ids)

    def note_start(self, kernel_id: KernelId, node: str) -> None:
        if kernel_id in self.starts and kernel_id not in self.wiped:
            raise Violation(
                f"kernel {kernel_id} was started on {self.starts[kernel_id]}, and again on {node}"
            )
        self.starts[kernel_id] = node

    def tell(self, text: str) -> None:
        self.story.append(f"{self.postgres.time:8.1f} s  {text}")

    # -- the whole run --

    async def run(self, steps: int = STEPS) -> None:
        kinds = [self.busy, self.user_creates, self.user_acts, self.node_reports, self.deliver_up,
                 self.write_orders, self.deliver_down, self.tick, self.wait, self.befall_node,
                 self.befall_stream, self.befall_manager, self.silence]  # fmt: skip
        weights = [14, 8, 5, 3, 5, 4, 5, 8, 3, 5, 4, 4, 1]
        for node in self.nodes:
            self.connect(node)
        for n in range(steps):
            await self.rng.choices(kinds, weights)[0]()
            await self.bury()
            for manager in self.managers:
                if manager.parked and self.rng.random() < 0.15:
                    await self.go_on(manager)
            if n % LOOK_EVERY == LOOK_EVERY - 1:
                await self.look(FOR_EVER_S)
        await self.calm_down()
        await self.settle()
        await self.stop_everything()

    async def end(self) -> None:
        """Nothing of this world runs on."""
        for manager in self.managers:
            await manager.die()

    async def bury(self) -> None:
        """A manager that died is started anew by whoever watches over it."""
        for n, manager in enumerate(self.managers):
            if manager.dead:
                await manager.die()
                self.managers[n] = self.born(n)
                self.tell(f"{manager.name} died; {self.managers[n].name} begins")

    async def operate(self, manager: ManagerLife, label: str, work: Callable[[], Any]) -> Any:
        if any(operation.label == label for operation in manager.parked):
            return None  # a loop makes one tick after the other
        fault, at = draw_fault(self.rng) if self.faults else (None, 0)
        operation = Operation(label, fault, at)
        answer = await manager.do(operation, work())
        words = {
            None: "",
            0: ", dies",
            1: ", dies",
            2: ", cut off",
            3: ", cut off",
            4: ", stopped",
            5: ", stopped",
        }
        struck = fault is not None and operation.count > at
        self.tell(
            f"{manager.name}: {label}" + (f"{words[fault]} at statement {at} ({fault})" if struck else "")
        )
        return answer

    # -- the links --

    def connect(self, node: Node, but: ManagerLife | None = None) -> None:
        others = [m for m in self.managers if m is not but]
        stream = Stream(node, self.rng.choice(others or self.managers), number=node.dial())
        self.streams.append(stream)
        stream.tell()
        self.tell(f"{node.name} dials {stream.manager.name}")

    def open_streams(self) -> list[Stream]:
        return [s for s in self.streams if s.open and s.node.up and not s.manager.dead]

    def notice_broken(self, node: Node) -> None:
        if not any(s.node is node for s in self.open_streams()):
            for stream in self.streams:
                if stream.node is node:
                    stream.open = False
            self.connect(node)

    async def node_reports(self) -> None:
        node = self.rng.choice(self.nodes)
        node.step()
        if not node.up:
            return
        self.notice_broken(node)
        for stream in self.open_streams():
            if stream.node is node:
                stream.tell()
                states = {o.kernel_id[-4:]: o.state.value for o in node.observations()}
                self.tell(f"{node.name} reports {states} at generation {node.taken}")

    async def deliver_up(self, which: Stream | None = None) -> None:
        busy = {(s.manager, s.node.name) for s in self.streams if s.busy}
        ready = [
            s for s in self.streams
            if s.up and not s.manager.dead and (s.manager, s.node.name) not in busy
            and s.held_until <= self.postgres.time
        ]  # fmt: skip
        if which is None and ready:
            which = self.rng.choice(ready)
        if which is None:
            return
        stream, manager, message = which, which.manager, which.up.popleft()
        await self.operate(manager, f"report of {stream.node.name}", lambda: manager.hear(stream, message))
        if not stream.open:
            await self.look_at_the_gone()

    async def write_orders(self) -> None:
        manager = self.rng.choice(self.managers)
        await self.operate(manager, "orders", manager.links.run_once)

    async def deliver_down(self, which: Stream | None = None) -> None:
        for stream in self.open_streams():
            stream.manager.write(stream)
        ready = [s for s in self.open_streams() if s.down]
        if which is None and ready:
            which = self.rng.choice(ready)
        if which is None:
            return
        which.obey(which.down.popleft())
        node = which.node
        ordered = [k.kernel_id[-4:] for k in node.orders.kernels] if node.orders else None
        self.tell(f"{node.name} hears orders: generation {node.newest}, {ordered}")
        if self.rng.random() < 0.7:
            node.step()

    # -- managers and time --

    async def tick(self) -> None:
        manager = self.rng.choice(self.managers)
        names = ["scheduler", "sessions", "replicas", "collector"]
        name = self.rng.choices(names, [8, 10, 3, 2])[0]
        if name != "sessions" and manager.leader.term is None and self.rng.random() < 0.9:
            await self.operate(manager, "leader", manager.leader.run_once)
            if manager.dead:
                return
        await self.operate(manager, name, getattr(manager, name).run_once)

    async def wait(self) -> None:
        self.postgres.time += self.rng.choice([0.1, 0.5, 1, 3, 5, 9, 20, 65])

    async def silence(self) -> None:
        """Long enough, with a manager that listens, for silent agents to be given up."""
        manager = self.rng.choice(self.managers)
        self.tell("silence")
        self.faults = False
        for _ in range(8):
            self.postgres.time += 8
            await self.operate(manager, "leader", manager.leader.run_once)
            await self.operate(manager, "collector", manager.collector.run_once)
        await self.operate(manager, "sessions", manager.sessions.run_once)
        self.faults = True

    async def busy(self) -> None:
        """A moment in which nearly everything does some work, in any order."""
        self.postgres.time += self.rng.choice([0.2, 1, 2, 4])
        manager = self.rng.choice(self.managers)
        work: list[Callable[[], Awaitable[None]]] = [self.node_reports] * len(self.nodes)
        work += [self.deliver_up] * 3 + [self.deliver_down] * 3
        if manager.leader.term is None:
            await self.operate(manager, "leader", manager.leader.run_once)
        work += [
            lambda tick=tick, name=name: self.operate(manager, name, tick)  # type: ignore[misc]
            for name, tick in (
                ("scheduler", manager.scheduler.run_once),
                ("sessions", manager.sessions.run_once),
                ("replicas", manager.replicas.run_once),
                ("beats", manager.store.write_beats),
            )
        ]
        work += [lambda m=m: self.operate(m, "orders", m.links.run_once) for m in self.managers]  # type: ignore[misc]
        self.rng.shuffle(work)
        for piece in work:
            if self.rng.random() < 0.8:
                await piece()
                await self.bury()
                if manager.dead:
                    return

    # -- what befalls them --

    async def befall_node(self) -> None:
        node = self.rng.choice(self.nodes)
        if not node.up:
            node.come_back()
            self.tell(f"{node.name} comes back as {node.incarnation}")
            return
        what = self.rng.choice(["die", "die", "reboot", "forget_all", "lose_disk", "blind", "shrink"])
        self.tell(f"{node.name}: {what}")
        if what == "blind":
            node.blind_until = self.postgres.time + self.rng.choice([5, 60])
        elif what == "shrink":
            node.cpu, node.gpus = self.rng.choice([2000, 8000]), self.rng.choice([1, 2])
        else:
            # A node that lost both its memory of a kernel and the kernel cannot know that it ever ran.
            if what in ("forget_all", "lose_disk"):
                self.wiped |= {k for k in node.ledger if k not in node.runtime}
            self.newcomers |= what == "lose_disk"
            if what == "reboot":
                self.wiped |= {k for k in node.runtime if k not in node.ledger}
            getattr(node, what)()
            for stream in self.streams:  # its connections end with it; what it sent may still arrive
                if stream.node is node:
                    stream.open = False
            if self.rng.random() < 0.5:
                node.come_back()
                self.tell(f"{node.name} comes back as {node.incarnation}")

    async def befall_stream(self) -> None:
        if not self.streams:
            return
        stream = self.rng.choice(self.streams[-4:])
        what = self.rng.choice(
            [
                "break",
                "break",
                "move",
                "move",
                "move",
                "lose report",
                "lose orders",
                "double report",
                "double orders",
            ]
        )
        self.tell(f"stream of {stream.node.name} to {stream.manager.name}: {what}")
        line: Any = stream.up if "report" in what else stream.down
        if what == "break":
            stream.open = False
            stream.down.clear()
            if self.rng.random() < 0.7:
                stream.up.clear()
        elif what == "move" and stream.open and stream.node.up:
            # What it says now comes late: by then another manager hears it, and it is further on.
            stream.tell()
            stream.open = False
            stream.held_until = self.postgres.time + self.rng.choice([5, 10, 20])
            stream.down.clear()
            self.connect(stream.node, but=stream.manager)
        elif line and "lose" in what:
            line.popleft()
        elif line:
            line.append(line[-1])

    async def befall_manager(self) -> None:
        manager = self.rng.choice(self.managers)
        if manager.parked:
            await self.go_on(manager)
        elif self.rng.random() < 0.5:
            manager.clock.skew = self.rng.choice([0, 3600, -3600])
            self.tell(f"{manager.name}: its clock is {manager.clock.skew} s off")
        else:
            manager.database.dead = True

    async def go_on(self, manager: ManagerLife) -> None:
        operation = self.rng.choice(manager.parked)
        self.tell(f"{manager.name} goes on with: {operation.label}")
        await manager.resume(operation)

    # -- calm --

    async def calm_down(self) -> None:
        """The faults end: what was stopped goes on, what died is back, what is broken is mended."""
        self.tell("-- calm --")
        self.faults = False
        for manager in self.managers:
            manager.clock.skew = 0
            while manager.parked:
                await manager.resume(manager.parked[0])
        await self.bury()
        for node in self.nodes:
            node.calm, node.blind_until = True, 0
        if len(self.nodes) > 1 and self.rng.random() < 0.3:
            # The one that runs most: its loss must be told in every session that ran there.
            self.gone = max(self.nodes, key=lambda n: sum(k.alive() for k in n.runtime.values()))
            self.nodes.remove(self.gone)
            self.gone.die()
            self.tell(f"{self.gone.name} never comes back")
        for stream in self.streams:
            if stream.node is self.gone:
                stream.open = False
        for node in self.nodes:
            if not node.up:
                node.come_back()

    async def everyone(self, seconds: float) -> None:
        """Time passes, and each does its work once, as it would many times meanwhile."""
        self.postgres.time += seconds
        for node in self.nodes:
            node.step()
            self.notice_broken(node)
            for stream in [s for s in self.open_streams() if s.node is node]:
                stream.tell()
        for stream in list(self.streams):
            while stream.up and not stream.manager.dead:
                await self.deliver_up(stream)
            if not stream.open:
                stream.manager.hang_up(stream)  # it notices, by its keepalives
        for manager in self.managers:
            await self.operate(manager, "leader", manager.leader.run_once)
            await self.operate(manager, "beats", manager.store.write_beats)
        manager = next((m for m in self.managers if m.leader.term is not None), self.managers[0])
        for loop in (manager.collector, manager.sessions, manager.replicas, manager.scheduler):
            await self.operate(manager, loop.loop.name, loop.run_once)
        for manager in self.managers:
            await self.operate(manager, "orders", manager.links.run_once)
        for stream in self.open_streams():
            stream.manager.write(stream)
            while stream.down:
                await self.deliver_down(stream)
        self.streams = self.open_streams()

    async def settle(self) -> None:
        # Short steps first: only who listens for as long may judge silence.
        quiet = (8,) * 7 if self.gone is not None or self.newcomers else (4, 8, 25)
        for seconds in (1, *quiet, 40, 65, 65, 65, 5, 5):
            await self.everyone(seconds)
        await self.look(60)
        await self.look_at_kernels()
        await self.look_at_ends()

    async def stop_everything(self) -> None:
        self.tell("-- stop everything --")
        store = self.managers[0].store
        for row in await self.postgres.fetch("SELECT name FROM endpoints WHERE deleted_at IS NULL"):
            await store.delete_endpoint(row["name"], actor="user")
        for row in await self.postgres.fetch(
            "SELECT id FROM sessions WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        ):
            await store.stop_session(row["id"], actor="user")
        for seconds in (1, 3, 8, 25, 65, 1, 1):
            await self.everyone(seconds)
        await self.look(10)
        await self.look_for_leftovers()
