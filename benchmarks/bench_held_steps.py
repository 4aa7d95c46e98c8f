"""Scheduling cost of pipeline steps that are still waiting.

    python benchmarks/bench_held_steps.py [--steps 10000] [--seconds 10] [--rate 10]

``--rate`` times a second, one session is created, and one scheduling pass reads the queue, plans,
places the session and writes holds, as the manager's loop does: first with nothing else in the
queue, then with a pipeline whose ``--steps`` steps wait for a running one. Prints CPU time of this
process and of Postgres for each pass, and how many sessions the pass read again and gave to the
planner.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from measuring import cpu_s, family, machine, machine_line
from moorage.common.aio.clock import SystemClock
from moorage.common.aio.gc import freeze_startup_objects
from moorage.common.link.messages import AgentInfo, Report, SlotOffer
from moorage.common.model.ids import AgentId
from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.scheduling import Policy
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache
from moorage.manager.store import Store, migrate
from moorage.manager.workloads import pipelines
from moorage.manager.workloads.pipeline_steps import NewStep

CLOCK = SystemClock()
SCOPE = Scope.system("bench")
SPEC = SessionSpec.model_validate({"command": ["true"], "resources": {"cpu": 1, "mem": "64MiB"}})


class Passes:
    """Scheduling passes over the default group. ``read``: sessions that were read or counted as
    changed."""

    def __init__(self, store: Store, term: int) -> None:
        self._store = store
        self._term = term
        self._planners = PlannerCache()
        self.cpu = 0.0
        self.planner_cpu = 0.0
        self.placed = 0
        self.read = 0

    async def run(self) -> None:
        began = time.process_time()
        read = self._store.scheduling
        for group, policy in await self._store.groups.with_pending():
            snapshot = await read.snapshot(group, policy)
            self.read += len(snapshot.changes.changed) if snapshot.changes else 0
            planning = time.process_time()
            made = self._planners.plan(snapshot, policy or Policy(), time.time_ns() // 1000, {})
            self.planner_cpu += time.process_time() - planning
            self.placed += await read.place(made.places, self._term)
            await read.record_holds(snapshot, made.holds, policy.num_retries_to_skip, made.bypasses)

        self.cpu += time.process_time() - began


async def submit(store: Store, count: int) -> None:
    """A pipeline of ``count`` steps: the first never ends, and each of the others waits for the one
    before."""
    spec = SPEC.model_dump(mode="json", exclude_defaults=True)
    steps = [{"name": "s0", "spec": spec}]
    steps += [{"name": f"s{n}", "after": [f"s{n - 1}"], "spec": spec} for n in range(1, count)]
    pipeline = PipelineSpec.model_validate({"name": "large", "steps": steps})
    nodes = pipelines.graph(pipelines.check(pipeline))
    new = [
        NewStep(
            node.item[0], None, run=1, position=position, spec=SPEC, template=None, waits=node.waits
        )
        for position, node in enumerate(nodes)
    ]
    await store.pipelines.create(SCOPE, pipeline, new)

    # it would happen by itself while passes are measured
    await store.database.fetch("VACUUM ANALYZE")


async def measure(
    store: Store, postgres: int, term: int, options: argparse.Namespace
) -> dict[str, float]:
    passes = Passes(store, term)
    for _ in range(
        30
    ):  # until everything has been read and planned once, and all holds are written
        await passes.run()
        await asyncio.sleep(0.1)

    passes.cpu = 0.0
    passes.planner_cpu = 0.0
    passes.placed = 0
    passes.read = 0
    before = sum(map(cpu_s, family(postgres)))
    count = options.seconds * options.rate
    for _ in range(count):
        started = time.perf_counter()
        await store.sessions.create(SCOPE, SPEC)
        await passes.run()
        await asyncio.sleep(max(0.0, 1 / options.rate - (time.perf_counter() - started)))

    used = sum(map(cpu_s, family(postgres))) - before
    assert passes.placed == count, passes.placed
    return {
        "pass": 1000 * passes.cpu / count,
        "planner": 1000 * passes.planner_cpu / count,
        "postgres": 1000 * used / count,
        "read": passes.read / count,
    }


async def main(options: argparse.Namespace) -> None:
    about = machine()
    home = Path(tempfile.mkdtemp(prefix="moorage-bench-"))
    home.chmod(0o711)

    try:
        async with EmbeddedPostgres(home / "pg", clock=CLOCK) as postgres:
            await migrate(postgres.dsn)
            async with Store(postgres.dsn, CLOCK) as store:
                term = await store.leases.acquire("bench", 3600) or 0
                offers = (SlotOffer("cpu", 1 << 40), SlotOffer("mem", 1 << 60))
                info = AgentInfo(
                    AgentId("node"),
                    "default",
                    address="127.0.0.1",
                    version="0",
                    arch="x86_64",
                    runtimes=("process",),
                    engines=("custom",),
                    offers=offers,
                )
                await store.reports.apply(AgentUpdate.of(Report(info, "i", 0, ())))
                freeze_startup_objects()
                found = {"nothing else": await measure(store, postgres.pid or 0, term, options)}
                await submit(store, options.steps)
                beside = await measure(store, postgres.pid or 0, term, options)
                found[f"{options.steps} steps that wait"] = beside
    finally:
        shutil.rmtree(home, ignore_errors=True)

    print(
        "| in the queue | CPU ms of a pass | planner | Postgres, with the creation | sessions read |"
    )
    print("|---|---:|---:|---:|---:|")
    for name, one in found.items():
        cells = (
            f"{one['pass']:.2f} | {one['planner']:.3f} | {one['postgres']:.1f} | {one['read']:.1f}"
        )
        print(f"| {name} | {cells} |")

    print(f"\n{machine_line(about)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=10, help="sessions and passes a second")
    asyncio.run(main(parser.parse_args()))
