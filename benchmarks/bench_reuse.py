"""Repeated requests: how many are decided per second at submission.

    python benchmarks/bench_reuse.py [--n 3000] [--rounds 3]

64 callers create sessions in the store of a durable Postgres: sessions that take no part in reuse,
ones that share the run of a live session, and ones that take the result of a success. Prints the
medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path

from measuring import machine, machine_line, median
from moorage.common.aio.clock import SystemClock
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.store import Store, migrate

HERE = Path(__file__).parent
CALLERS = 64
SUCCEED = (
    "UPDATE sessions SET status = 'TERMINATED', result = 'SUCCESS', ready_at = now() WHERE id = $1"
)
GOAL_PER_S = 1000


async def _create(store: Store, number: int, program: str, reuse: str) -> tuple[float, int]:
    """Creates per second, and how many of them reuse another session."""
    spec = SessionSpec.model_validate(
        {"command": [program], "resources": {"cpu": 1}, "reuse": reuse}
    )
    limit = asyncio.Semaphore(CALLERS)
    scope = Scope.system("bench")

    async def one() -> bool:
        async with limit:
            return (await store.sessions.create(scope, spec)).adopted_from is not None

    started = time.perf_counter()
    reused = sum(await asyncio.gather(*(one() for _ in range(number))))
    return number / (time.perf_counter() - started), reused


async def measure(number: int, rounds: int) -> dict[str, float]:
    home = Path(tempfile.mkdtemp(prefix="moorage-bench-"))
    home.chmod(0o711)
    found: dict[str, list[float]] = {"never": [], "live": [], "success": []}
    try:
        async with EmbeddedPostgres(home / "pg", clock=SystemClock()) as postgres:
            await migrate(postgres.dsn)
            async with Store(postgres.dsn, SystemClock()) as store:
                for n in range(rounds):
                    for reuse, rates in found.items():
                        program = f"{reuse}-{n}"
                        if reuse != "never":
                            spec = SessionSpec(
                                command=[program], resources={"cpu": 1}, reuse="both"
                            )
                            first = await store.sessions.create(Scope.system("bench"), spec)
                            if reuse == "success":
                                await store.database.fetch(SUCCEED, first.id)

                        rate, reused = await _create(store, number, program, reuse)
                        assert reused == (0 if reuse == "never" else number)
                        rates.append(rate)
    finally:
        shutil.rmtree(home, ignore_errors=True)

    return {reuse: median(rates) for reuse, rates in found.items()}


async def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time the creation of sessions that repeat others."
    )
    parser.add_argument("--n", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "reuse.json")
    options = parser.parse_args()
    about = machine()
    found = await measure(options.n, options.rounds)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": about, "per_s": found}, indent=1))
    print("| `reuse` | created /s | goal |\n|---|---:|---:|")
    for reuse, rate in found.items():
        print(f"| {reuse} | {rate:.0f} | {'' if reuse == 'never' else GOAL_PER_S} |")

    print(f"\n{machine_line(about)}")


if __name__ == "__main__":
    asyncio.run(main())
