"""Size of the database: rows and bytes in each table for a session that has ended.

    python benchmarks/bench_rows.py [--sessions 1000] [--rate 50]

A durable Postgres, a manager and simulated agents; each session requests a GPU, a CPU and memory,
and runs for 50 to 500 ms. Sizes include indexes; tables are vacuumed before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from bench_life import PROFILE, measure_rate
from cluster import start_cluster
from measuring import machine, machine_line

HERE = Path(__file__).parent
SIZES = """
SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes, c.reltuples::bigint AS rows
FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
"""


async def sizes(connection: asyncpg.Connection) -> dict[str, tuple[int, int]]:
    await connection.execute("VACUUM FULL ANALYZE")
    return {
        row["name"]: (row["bytes"], max(row["rows"], 0)) for row in await connection.fetch(SIZES)
    }


async def measure(sessions: int, rate: float) -> list[dict[str, Any]]:
    """By table, the largest first."""
    async with start_cluster(50, *PROFILE) as cluster:
        connection = await asyncpg.connect(cluster.dsn)
        try:
            await measure_rate(cluster, connection, rate, 2)
            before = await sizes(connection)
            found = await measure_rate(cluster, connection, rate, sessions / rate)
            await asyncio.sleep(5)  # the ledger and statistics are written later
            after = await sizes(connection)
        finally:
            await connection.close()

    grown = [
        {
            "table": name,
            "bytes": (after[name][0] - before[name][0]) / found["sessions"],
            "rows": (after[name][1] - before[name][1]) / found["sessions"],
        }
        for name in before
    ]
    return sorted((one for one in grown if one["bytes"] >= 1), key=lambda one: -one["bytes"])


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| table | rows per session | bytes per session |", "|---|---:|---:|"]
    lines += [f"| `{row['table']}` | {row['rows']:.1f} | {row['bytes']:,.0f} |" for row in rows]
    lines.append(
        f"| all | {sum(row['rows'] for row in rows):.1f} | {sum(row['bytes'] for row in rows):,.0f} |"
    )
    return "\n".join(lines)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "rows.json")
    args = parser.parse_args()
    host = machine()
    rows = await measure(args.sessions, args.rate)
    print(machine_line(host))
    print(table(rows))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": host, "rows": rows}, indent=1))


if __name__ == "__main__":
    uvloop.run(main())
