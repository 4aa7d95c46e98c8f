"""A leader's planner with many resource groups: the cost of one pass by their number, for
docs/scale.md.

    python benchmarks/bench_groups.py [--groups 10 100 1000] [--agents 100] [--pending 20]

Each group has that many full agents of eight GPUs, and sessions that wait. The first pass is that
of a new leader; then nothing changes, then one group in a hundred gets a session. Reports the CPU
time of this process, which does what the leader's planner does and nothing else; memory is the
amount that the groups and planners keep.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from measuring import machine, machine_line, rss_mb
from moorage.common.aio.gc import freeze_startup_objects
from moorage.manager.scheduling import Policy, Snapshot
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache
from planner_worlds import NOW, session, world

HERE = Path(__file__).parent
POLICY = Policy()
ROUNDS = 5


@dataclass(frozen=True)
class Row:
    groups: int
    agents: int
    pending: int
    first_ms: float
    unchanged_ms: float
    changed_groups: int
    changed_ms: float
    memory_mb: float


def cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def measure(count: int, agents: int, pending: int) -> Row:
    before = rss_mb(os.getpid())
    rng = random.Random(count)
    groups = [
        replace(world("none fits", pending, agents, seed), group=f"g{seed}")
        for seed in range(count)
    ]
    planners = PlannerCache()

    def each(which: Sequence[Snapshot]) -> None:
        for group in which:
            planners.plan(group, POLICY, NOW)

    first = cpu_ms(lambda: each(groups))
    unchanged = statistics.median(cpu_ms(lambda: each(groups)) for _ in range(ROUNDS))
    changing = max(1, count // 100)
    took = []
    for turn in range(ROUNDS):
        now = [replace(group, pending=(*group.pending, session(pending + turn, rng)))
               for group in groups[:changing]]  # fmt: skip
        took.append(cpu_ms(lambda now=now: each(now)))

    memory = rss_mb(os.getpid()) - before
    return Row(
        count,
        agents,
        pending=pending,
        first_ms=first,
        unchanged_ms=unchanged,
        changed_groups=changing,
        changed_ms=statistics.median(took),
        memory_mb=memory,
    )


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| groups | agents in all | waiting in all | first pass, ms | nothing changed, ms "
        "| a session in 1 % of the groups, ms | memory, MB |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row.groups:,} | {row.groups * row.agents:,} | {row.groups * row.pending:,} "
            f"| {row.first_ms:,.0f} | {row.unchanged_ms:.1f} | {row.changed_ms:.2f} | {row.memory_mb:,.0f} |"
        )

    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--groups", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--pending", type=int, default=20)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "groups.json")
    args = parser.parse_args()
    host = machine()
    freeze_startup_objects()
    rows = [measure(count, args.agents, args.pending) for count in args.groups]
    print(machine_line(host))
    print(table(rows))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": host, "rows": list(map(asdict, rows))}, indent=1))


if __name__ == "__main__":
    main()
