"""The manager's cost by the size of the installation: it must grow with the changes, not with the
number of existing objects.

    python benchmarks/scale.py [--only sessions endpoints] [--sessions 30000 300000] [--check]

Each case builds databases that differ tenfold in one dimension, on a separate Postgres, and does
the same in each of them in turn: an iteration of every loop while nothing changes, a scheduling
pass that starts nothing, a route change, and a report with one change. Costs are the CPU time of
this process and of Postgres, so they hardly depend on other work on the machine. Prints a table
with the ratios of the two largest sizes, and writes JSON. The smallest size shows where a cost
stops growing: loops examine chunks of constant size, which a small database does not fill.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import structlog

import scale_agent
import scale_leader
import scale_loops
import scale_reports
import scale_routes
from measuring import machine, machine_line
from moorage.common.aio import gc
from moorage.common.aio.clock import SystemClock
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.store import migrate
from scale_meter import Case, Meter

HERE = Path(__file__).parent
GOAL_RATIO = 1.5
CHECKED_RATIO = 3.0
# A cost below this at the larger size is noise compared with a loop's fixed costs.
NOISE_MS = 0.5
CHECKED_NOISE_MS = 5.0
BLOCKED_MS = 50.0
CHECKED_BLOCKED_MS = 250.0
# Otherwise a background worker would add its cost to whichever step is running.
SETTINGS = {
    "autovacuum": "off",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "shared_buffers": "512MB",
    "max_connections": "300",
}

CASES: dict[str, Case] = {
    **scale_loops.CASES,
    **scale_reports.CASES,
    **scale_agent.CASES,
    **scale_routes.CASES,
}


@dataclass(frozen=True)
class Row:
    """Medians over the rounds: milliseconds of CPU by size (``unit``: per step, or per second of
    idleness), and the longest time for which the event loop was blocked."""

    case: str
    step: str
    unit: str
    by_size_ms: tuple[float, ...]
    blocked_ms: float

    @property
    def ratio(self) -> float:
        """Of the two largest sizes."""
        *_, small, large = self.by_size_ms
        return large / small if small else float("inf")

    def meets(self, ratio: float, noise_ms: float, blocked_ms: float) -> bool:
        return (
            self.ratio <= ratio or self.by_size_ms[-1] <= noise_ms
        ) and self.blocked_ms <= blocked_ms


@asynccontextmanager
async def database(postgres: EmbeddedPostgres, name: str) -> AsyncIterator[str]:
    """The DSN of a new, migrated database."""
    admin = await asyncpg.connect(postgres.dsn)
    try:
        await admin.execute(f'CREATE DATABASE "{name}"')
        dsn = urlunsplit(urlsplit(postgres.dsn)._replace(path=f"/{name}"))
        await migrate(dsn)
        yield dsn
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await admin.close()


async def measure(
    postgres: EmbeddedPostgres, name: str, sizes: Sequence[int], rounds: int, *, managers: bool
) -> tuple[list[Row], list[scale_leader.Share]]:
    case = CASES[name]
    meters = [Meter(postgres.pid or 0) for _ in sizes]
    async with AsyncExitStack() as stack:
        dsns = [
            await stack.enter_async_context(database(postgres, f"{name}_{size}")) for size in sizes
        ]
        shares = []
        async with AsyncExitStack() as subjects:
            made = [case.subject(dsn, size) for dsn, size in zip(dsns, sizes, strict=True)]
            for subject in made:
                await subjects.enter_async_context(subject)

            for number in range(rounds + 1):
                for subject, meter in zip(made, meters, strict=True):
                    # the first one warms caches and prepares
                    async with meter.round(kept=number > 0):
                        await subject.round(meter)

        if case.has_leader and managers:
            shares = await scale_leader.shares(dsns[-1], name)

    medians = [meter.medians_ms() for meter in meters]
    blocked_ms = meters[-1].blocked_ms
    rows = [
        Row(
            name,
            step,
            unit=case.unit(step),
            by_size_ms=tuple(one[step] for one in medians),
            blocked_ms=blocked_ms.get(step, 0.0),
        )
        for step in medians[-1]
    ]
    return rows, shares


def table(rows: Sequence[Row], sizes: dict[str, Sequence[int]]) -> str:
    count = max(map(len, sizes.values()))
    names = ["smallest", "smaller", "larger"][-count:]
    lines = [
        f"| by | step | | {' | '.join(f'{name}, ms' for name in names)} | ratio | blocked, ms |",
        "|---|---|---|" + "---:|" * (count + 2),
    ]
    for row in rows:
        mark = "" if row.meets(GOAL_RATIO, NOISE_MS, BLOCKED_MS) else " **"
        by = f"{row.case} {' → '.join(map(str, sizes[row.case]))}"
        costs = " | ".join(f"{cost_ms:.2f}" for cost_ms in row.by_size_ms)
        lines.append(
            f"| {by} | {row.step} | {row.unit} | {costs} | {row.ratio:.2f}{mark} | {row.blocked_ms:.0f} |"
        )

    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    for name, case in CASES.items():
        parser.add_argument(
            f"--{name}", type=int, nargs="+", metavar="N", help=f"default: {case.sizes}"
        )

    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="short form; fails on gross loss only")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "scale.json")
    return parser.parse_args()


async def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    args = arguments()
    host = machine()
    directory = Path(tempfile.mkdtemp(prefix="moorage-scale-"))
    directory.chmod(0o711)
    sizes = {
        name: getattr(args, name) or (CASES[name].short if args.check else CASES[name].sizes)
        for name in args.only
    }
    rows: list[Row] = []
    shares: list[scale_leader.Share] = []
    gc.freeze_startup_objects()  # as every daemon does

    try:
        async with EmbeddedPostgres(
            directory / "pg", clock=SystemClock(), extra=SETTINGS
        ) as postgres:
            for name, of_case in sizes.items():
                found = await measure(
                    postgres,
                    name,
                    of_case,
                    2 if args.check else args.rounds,
                    managers=not args.check,
                )
                rows = rows + found[0]
                shares = shares + found[1]
    finally:
        shutil.rmtree(directory, ignore_errors=True)

    print(machine_line(host))
    print(table(rows, sizes))
    print(scale_leader.table(shares))
    args.json.parent.mkdir(exist_ok=True)
    written = {"machine": host, "sizes": sizes, "rows": list(map(asdict, rows))}
    args.json.write_text(json.dumps(written | {"shares": list(map(asdict, shares))}, indent=1))

    if args.check:
        lost = [r for r in rows if not r.meets(CHECKED_RATIO, CHECKED_NOISE_MS, CHECKED_BLOCKED_MS)]
        if lost:
            sys.exit("grows with what exists: " + ", ".join(f"{r.case}: {r.step}" for r in lost))


if __name__ == "__main__":
    asyncio.run(main())
