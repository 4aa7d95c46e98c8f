"""Throughput of each write of the store, compared with pgbench and with one transaction per step.

    python benchmarks/bench_store.py [--n 2000] [--rounds 3]

The benchmark starts a durable Postgres. In each round, N sessions pass through five steps: create,
place, observe (RUNNING), move (a transition), and release (observe their end). Three
implementations take turns:

* the store's methods, called by 64 concurrent callers
* pgbench with prepared single-row statements on 8 connections, for steps that can be repeated on
  one row (create and move)
* ``naive.py``: one transaction per session and step over plain asyncpg, on 8 connections

Prints operations per second and their ratios, as medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import asyncpg

from measuring import machine, machine_line, median
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import AgentInfo, Observation, Report, SlotOffer
from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle import Event, Transition
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.scheduling import Place
from moorage.manager.scheduling.core.model import Allocation
from moorage.manager.store import Store, migrate
from naive import AGENTS, SPEC, TAKES, Naive

HERE = Path(__file__).parent
STEPS = ("create", "place", "observe", "move", "release")
CALLERS = 64
T = TypeVar("T")

PGBENCH = {
    "create": """
\\set n random(1, 9000000000)
WITH created AS (
    INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, created_by, owner)
    VALUES (gen_random_uuid(), gen_random_uuid()::text, 'batch', 'PENDING', 'default', 10, '@SPEC@',
            '@SLOTS@', 'pgbench', 'pgbench')
    RETURNING id
), kernels_added AS (
    INSERT INTO kernels (id, session_id, attempt, status, secret)
    SELECT gen_random_uuid(), id, 1, 'PENDING', 'secret' FROM created
)
INSERT INTO session_history (session_id, revision, event, to_status, actor)
SELECT id, 1, 'created', 'PENDING', 'pgbench' FROM created;
""",
    "move": """
\\set n random(1, @ROWS@)
WITH moved AS (
    UPDATE sessions SET status = 'RUNNING', revision = revision + 1, status_since = now()
    WHERE id = (SELECT id FROM pgbench_ids WHERE n = :n) RETURNING id, revision
)
INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor)
SELECT id, revision, 'ready', 'SCHEDULED', 'RUNNING', 'pgbench' FROM moved ON CONFLICT DO NOTHING;
""",
}


async def each(items: Sequence[T], work: Callable[[T], Awaitable[object]], callers: int) -> float:
    """Seconds that ``callers`` concurrent callers take for ``work`` on all items."""
    waiting = list(reversed(items))

    async def one() -> None:
        while waiting:
            await work(waiting.pop())

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(callers)))
    return time.perf_counter() - start


class StoreWrites:
    """The store's own methods."""

    def __init__(self, store: Store, term: int) -> None:
        self._store = store
        self._term = term
        self._agents = [AgentId(f"bench-{n}") for n in range(AGENTS)]

    async def prepare(self) -> None:
        await asyncio.gather(*(self._report(a) for a in self._agents))

    async def _report(self, agent: AgentId, *kernels: Observation) -> int:
        offers = tuple(SlotOffer(slot, 1 << 60) for slot in TAKES)
        info = AgentInfo(
            agent,
            "bench",
            address="127.0.0.1",
            version="0",
            arch="x86_64",
            runtimes=("process",),
            engines=("custom",),
            offers=offers,
        )
        full = AgentUpdate.of(Report(info, "i", 0, ()))
        observed = {k.kernel_id: k for k in kernels}
        changes = replace(full, observed=observed, whole=False, info_changed=False)
        return await self._store.reports.apply(changes if kernels else full)

    async def round(self, n: int) -> dict[str, float]:
        store = self._store
        seconds = {}
        made: list[tuple[SessionId, KernelId]] = []

        async def create(_: int) -> None:
            view = await store.sessions.create(Scope.system("bench"), SPEC)
            made.append((SessionId(view.id), KernelId(view.kernels[0].id)))

        seconds["create"] = await each(range(n), create, CALLERS)
        where = {kernel: self._agents[i % AGENTS] for i, (_, kernel) in enumerate(made)}
        takes = tuple(Allocation(slot, DeviceId(""), amount) for slot, amount in TAKES.items())
        places = [Place(session, kernel, 1, where[kernel], takes) for session, kernel in made]

        # Like a scheduling pass: many placements in one call.
        passes = [places[i : i + 200] for i in range(0, n, 200)]
        seconds["place"] = await each(passes, lambda p: store.scheduling.place(p, self._term), 1)
        observations = [
            (where[kernel], Observation(kernel, session, ObservedState.RUNNING))
            for session, kernel in made
        ]
        seconds["observe"] = await each(observations, lambda seen: self._report(*seen), CALLERS)
        moves = [
            Transition(s, Status.SCHEDULED, revision=2, event=Event.READY, new=Status.RUNNING)
            for s, _ in made
        ]
        seconds["move"] = await each(moves, store.lifecycle.apply, CALLERS)
        ends = [
            (a, replace(o, state=ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO))
            for a, o in observations
        ]
        seconds["release"] = await each(ends, lambda end: self._report(*end), CALLERS)

        return seconds


async def naive_round(dsn: str, postgres: int, n: int) -> dict[str, float]:
    """The same five steps, with one transaction per session and step."""
    naive = Naive(dsn, postgres)
    seconds = {}
    pool = [await asyncpg.connect(dsn) for _ in range(8)]
    await naive.prepare(pool[0])
    free = list(pool)
    made: list[tuple[str, str]] = []

    async def using(work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        connection = free.pop()
        try:
            return await work(connection)
        finally:
            free.append(connection)

    async def create(_: int) -> None:
        made.append(await using(naive.create))

    agents = [f"naive-{i % AGENTS}" for i in range(n)]
    seconds["create"] = await each(range(n), create, len(pool))
    work: dict[str, Callable[[int], Callable[[asyncpg.Connection], Awaitable[None]]]] = {
        "place": lambda i: lambda c: naive.place(c, *made[i], agents[i]),
        "observe": lambda i: lambda c: naive.observe(c, made[i][1], "RUNNING", agents[i]),
        "move": lambda i: lambda c: naive.move(c, made[i][0], 3, "SCHEDULED", new="RUNNING"),
        "release": lambda i: lambda c: naive.end(c, made[i][1], agents[i]),
    }
    for step, of in work.items():
        statements = [of(i) for i in range(n)]
        seconds[step] = await each(statements, using, len(pool))
    for connection in pool:
        await connection.close()

    return seconds


def pgbench(dsn: str, step: str, rows: int, seconds: int, *, directory: Path) -> float:
    """Transactions per second; 0 if pgbench is not installed."""
    program = shutil.which("pgbench") or next(
        map(str, Path("/usr/lib/postgresql").glob("*/bin/pgbench")), None
    )
    if program is None:
        return 0.0

    script = PGBENCH[step].replace("@ROWS@", str(rows)).replace("@SPEC@", SPEC.model_dump_json())
    file = directory / f"{step}.sql"

    # A space after each colon, which pgbench would otherwise read as the start of a variable.
    file.write_text(re.sub(r'":', '": ', script.replace("@SLOTS@", json.dumps(TAKES))))
    command = [
        program,
        "-n",
        "-M",
        "prepared",
        "-c",
        "8",
        "-j",
        "2",
        "-T",
        str(seconds),
        "-f",
        str(file),
        dsn,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([\d.]+)", result.stdout)
    if found is None:
        raise SystemExit(f"pgbench failed:\n{result.stderr[-2000:]}")

    return float(found[1])


async def measure(n: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Operations per second by implementation and step, one value per round. The first round warms
    up."""
    directory = Path(tempfile.mkdtemp(prefix="moorage-bench-"))
    directory.chmod(0o711)
    found: dict[str, dict[str, list[float]]] = {
        w: {s: [] for s in STEPS} for w in ("ours", "pgbench", "naive")
    }
    try:
        async with EmbeddedPostgres(directory / "pg", clock=SystemClock()) as postgres:
            await migrate(postgres.dsn)
            async with Store(postgres.dsn, SystemClock()) as store:
                term = await store.leases.acquire("bench", 3600)
                ours = StoreWrites(store, term or 0)
                await ours.prepare()

                for number in range(rounds + 1):
                    mine = await ours.round(n)
                    plain = await naive_round(postgres.dsn, postgres.pid or 0, n)
                    await store.database.fetch("DROP TABLE IF EXISTS pgbench_ids")
                    await store.database.fetch(
                        "CREATE TABLE pgbench_ids AS SELECT row_number() OVER () AS n, id FROM sessions"
                    )
                    await store.database.fetch("ALTER TABLE pgbench_ids ADD PRIMARY KEY (n)")
                    rows = (await store.database.fetch("SELECT count(*) AS n FROM pgbench_ids"))[0][
                        "n"
                    ]
                    tps = {
                        step: await asyncio.to_thread(
                            pgbench, postgres.dsn, step, rows, 2, directory=directory
                        )
                        for step in PGBENCH
                    }
                    if number:
                        for step in STEPS:
                            found["ours"][step].append(n / mine[step])
                            found["naive"][step].append(n / plain[step])
                            found["pgbench"][step].append(tps.get(step, 0.0))

                    print(f"\rround {number}/{rounds}", end="", file=sys.stderr, flush=True)

        print(file=sys.stderr)
    finally:
        shutil.rmtree(directory, ignore_errors=True)

    return found


def table(found: dict[str, dict[str, list[float]]]) -> str:
    lines = [
        "| step | Moorage /s | pgbench, single rows /s | naive /s | ÷ pgbench | ÷ naive |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for step in STEPS:
        ours, raw, plain = (median(found[way][step]) for way in ("ours", "pgbench", "naive"))
        shown = (f"{raw:.0f}", f"{ours / raw:.2f}") if raw else ("", "")
        lines.append(
            f"| {step} | {ours:.0f} | {shown[0]} | {plain:.0f} | {shown[1]} | {ours / plain:.1f} |"
        )

    return "\n".join(lines)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compare the store's writes with pgbench and with a naive implementation."
    )
    parser.add_argument("--n", type=int, default=2000, help="sessions per round (2000)")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds (3)")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "store.json")
    parser.add_argument(
        "--check", action="store_true", help="fail below a quarter of pgbench (for CI)"
    )
    options = parser.parse_args()
    about = machine()
    found = await measure(options.n, options.rounds)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(
        json.dumps({"machine": about, "n": options.n, "ops_per_s": found}, indent=1)
    )
    print(table(found) + "\n\n" + machine_line(about))
    slow = [s for s in PGBENCH if median(found["pgbench"][s]) > 4 * median(found["ours"][s])]
    if options.check and slow:
        sys.exit(f"below a quarter of pgbench: {', '.join(slow)}")


if __name__ == "__main__":
    asyncio.run(main())
