"""Cost of idle agents: what their heartbeats and connections cost the manager and Postgres, by
their number.

    python benchmarks/idle_agents.py [--agents 1000 10000] [--seconds 30]

A manager with a durable Postgres, and `moorage simulate` with that many agents, each with its own
connection; they take turns, and nothing happens. The interval of the heartbeats adapts to the
number of agents, so the first half minute after they have connected is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from cluster import start_cluster
from measuring import machine, machine_line, rss_mb

HERE = Path(__file__).parent
GOAL_AGENTS = 10_000
GOAL_PERCENT = 25.0
SETTLED_S = 40.0


async def measure(agents: int, seconds: float, settled_s: float) -> dict[str, Any]:
    """CPU use in percent of a core."""
    async with start_cluster(agents) as cluster:
        await asyncio.sleep(settled_s)
        before = cluster.cpu()
        await asyncio.sleep(seconds)
        used = {
            name: 100 * (after - before[name]) / seconds for name, after in cluster.cpu().items()
        }
        return {"idle_agents": agents, **used, "manager_rss_mb": rss_mb(cluster.pids["manager"])}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| idle agents | manager, % of a core | Postgres, % | together, % | manager, MB |",
        "|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        both = row["manager"] + row["postgres"]
        lines.append(
            f"| {row['idle_agents']:,} | {row['manager']:.1f} | {row['postgres']:.1f} | {both:.1f} "
            f"| {row['manager_rss_mb']:.0f} |"
        )

    return "\n".join(lines)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--agents", type=int, nargs="+", default=[1_000, GOAL_AGENTS])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--check", action="store_true", help="short form; fails at twice the goal")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "idle_agents.json")
    args = parser.parse_args()
    host = machine()
    counts, settled_s = ([500], 5.0) if args.check else (args.agents, SETTLED_S)
    rows = [
        await measure(count, 10.0 if args.check else args.seconds, settled_s) for count in counts
    ]
    print(machine_line(host))
    print(table(rows))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": host, "rows": rows}, indent=1))
    limit = 2 * GOAL_PERCENT
    if args.check and (over := [r for r in rows if r["manager"] + r["postgres"] > limit]):
        sys.exit(f"more than {limit:g} % of a core: {over}")


if __name__ == "__main__":
    asyncio.run(main())
