"""A node is partitioned for an hour of virtual time: its agent and programs continue alone, and the
managers continue without them."""

from __future__ import annotations

import pytest

from moorage.agent.runtimes.simulated import KernelScript
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.queries import SQL

from .database import Postgres
from .node import Node, Violation
from .simulation import Simulation
from .test_simulation import SEEDS, SQL_MUTATIONS, run_seed_of
from .workload import simulated

# Short steps come first, because only a manager that has run long enough may declare an agent LOST.
HOUR_S = (*(8,) * 10, *(160,) * 22)
CUT_OFF = "is cut off for an hour"
STEPS_AFTER = 12
# The grace period of the checks, which is longer than a step.
GRACE_S = 400
COUNT = max(SEEDS // 20, 8)


class LongPartition(Simulation):
    """After the random steps a node is cut off for an hour, and random steps follow once it is
    back. ``came_back_with``: the kernels that had started there and whose programs were still
    running."""

    came_back_with = 0

    def begin_automation(self, seed: int) -> None:
        """Without the runs of cron jobs, which would take the place of long programs."""
        super().begin_automation(seed)
        self.automation_rng = None

    async def end_faults(self) -> None:
        await self.start_programs()
        await self.cut_off(max(self.nodes, key=lambda node: len(node.programs())))
        for _ in range(STEPS_AFTER):
            await self.run_most()
            await self.restart_crashed()
        await super().end_faults()

    async def start_programs(self) -> None:
        """Programs that keep running until they are stopped."""
        self.faults = False
        for manager in self.managers:
            while manager.paused:
                await manager.resume(manager.paused[0])

        await self.restart_crashed()
        for policy in ("wait", "fail", "requeue"):
            spec = SessionSpec(
                name=f"long-{policy}", type="batch", command=simulated(KernelScript()), resources={"cpu": 1},
                on_lost_agent=policy, retries=2 if policy == "requeue" else 0, stop_grace_s=5,
            )  # fmt: skip
            view = await self.managers[0].store.sessions.create(Scope.system("user"), spec)
            self.acknowledged.add(view.id)

        for _ in range(8):
            await self.run_all(8)

    async def cut_off(self, node: Node) -> None:
        if not node.up:
            node.restart()

        self.record(f"{node.name} {CUT_OFF}")
        for stream in self.streams:
            if stream.node is node:
                stream.open = False
                stream.up.clear()
                stream.down.clear()
                stream.manager.disconnect(stream)

        self.streams = [stream for stream in self.streams if stream.node is not node]
        self.nodes.remove(node)

        # The checks still look at its programs.
        self.lost_node = node
        self.faults = False
        for number, seconds in enumerate(HOUR_S):
            await self.run_all(seconds)
            node.step()
            if number % 8 == 7:
                await self.check_always(GRACE_S)

        self.came_back_with = len(node.programs())
        self.lost_node = None
        self.faults = True
        self.nodes.append(node)
        self.record(f"{node.name} is back with {self.came_back_with} programs")


async def run_seeds(postgres: Postgres) -> int:
    """The number of programs that kept running beyond the partition."""
    back = 0
    for seed in range(COUNT):
        back += (await run_seed_of(LongPartition, seed, postgres)).came_back_with
    return back


@pytest.mark.timeout(600)
async def test_a_partition_that_heals_after_an_hour(postgres: Postgres) -> None:
    back = await run_seeds(postgres)
    assert back >= 2 * COUNT, "a node that comes back with nothing proves nothing"


async def test_freeing_what_may_run_on_the_other_side_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, part, replacement, violation = SQL_MUTATIONS["devices are released when a session ends"]
    monkeypatch.setitem(SQL, name, SQL[name].replace(part, replacement))
    with pytest.raises(Violation, match=f"(?s){CUT_OFF}.*{violation}"):
        await run_seeds(postgres)
