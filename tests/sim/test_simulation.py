"""Deterministic simulation of hundreds of seeds, and mutations that it must detect.

A failing seed prints its log and the command that reproduces it. ``MOORAGE_SEEDS=1000`` simulates
that many, starting with ``MOORAGE_FIRST_SEED``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from moorage.agent.kernel import reconcile
from moorage.common.model.status import ObservedState
from moorage.manager.lifecycle.kernels import AgentUpdate, kernel_changes
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.platform import reports

from .database import Postgres
from .node import Violation
from .simulation import Simulation

SEEDS = int(os.environ.get("MOORAGE_SEEDS", "200"))
FIRST_SEED = int(os.environ.get("MOORAGE_FIRST_SEED", "0"))
GATE_SEEDS = min(SEEDS, 60)
# Seeds run in parts, which can run in parallel.
PART = 30
TRUNCATE_EVERY = 50
Simulated = TypeVar("Simulated", bound=Simulation)


def parts(begin: int, end: int) -> list[range]:
    """Parts with at least ``PART`` seeds, unless there is only one part."""
    count = max((end - begin) // PART, 1) if end > begin else 0
    bounds = [begin + (end - begin) * number // count for number in range(count)] + [end]
    return [range(first, last) for first, last in pairwise(bounds)]


GATE_END = FIRST_SEED + GATE_SEEDS
PARTS = [pytest.param(seeds) for seeds in parts(FIRST_SEED, GATE_END)]
PARTS += [
    pytest.param(seeds, marks=pytest.mark.slow) for seeds in parts(GATE_END, FIRST_SEED + SEEDS)
]


async def run_seed(seed: int, postgres: Postgres) -> Simulation:
    return await run_seed_of(Simulation, seed, postgres)


async def run_seed_of(kind: type[Simulated], seed: int, postgres: Postgres) -> Simulated:
    """Raises ``Violation`` with the log and the command that reproduces it."""
    await postgres.clear(truncate=seed % TRUNCATE_EVERY == 0)
    simulation = kind(seed, postgres)
    try:
        await simulation.run()
    except Exception as error:
        log = "\n".join(simulation.log)
        raise Violation(
            f"seed {seed}:\n{log}\n{type(error).__name__}: {error}\n"
            f"reproduce: MOORAGE_SEED={seed} .venv/bin/pytest tests/sim -k replay"
        ) from error
    finally:
        await simulation.end()

    return simulation


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seeds", PARTS, ids=lambda part: f"{part.start}-{part.stop - 1}")
async def test_seeds(postgres: Postgres, seeds: range) -> None:
    steps = kernels = 0
    for seed in seeds:
        simulation = await run_seed(seed, postgres)
        kernels += len(simulation.started_on)
        steps += len(simulation.log)

    print(
        f"\n{len(seeds)} seeds, {steps} steps, {kernels} kernels started, {postgres.transactions_kept_open} "
        f"transactions kept open, {postgres.lock_waits} lock waits, 0 violations"
    )
    assert kernels > len(seeds), "a simulation in which nothing happens proves nothing"
    assert postgres.lock_waits > 0 or len(seeds) < PART


async def test_replay(postgres: Postgres) -> None:
    """Print the log of the seed in ``MOORAGE_SEED``. A second run must produce the same log."""
    seed = int(os.environ.get("MOORAGE_SEED", "7"))
    first = await run_seed(seed, postgres)
    print("\n".join(first.log))
    assert (await run_seed(seed, postgres)).log == first.log


# Mutations: one rule broken at a time. The simulation must detect each of them.

RELEASE_AT_END = """), freed AS (
    UPDATE allocations a SET released_at = now() FROM moved m, kernels k
    WHERE k.session_id = m.id AND a.kernel_id = k.id AND a.released_at IS NULL
      AND m.new IN ('TERMINATED', 'ERROR')
    RETURNING a.agent_id, a.slot, a.device_id, a.amount
), uncounted AS (
    UPDATE agent_slots c SET used = c.used - x.amount
    FROM (SELECT agent_id, slot, device_id, sum(amount)::bigint AS amount FROM freed GROUP BY 1, 2, 3) x
    WHERE (c.agent_id, c.slot, c.device_id) = (x.agent_id, x.slot, x.device_id)
), fresh AS ("""

# Mutations of SQL: the statement, a part of it, its replacement, and the violation.
SQL_MUTATIONS = {
    "devices are released when a session ends": (
        "session_transition", "), fresh AS (", RELEASE_AT_END, "was freed",
    ),
    "a transition sets no deadline": (
        "session_transition", "now() + make_interval(secs => i.deadline_s)", "NULL::timestamptz",
        "without a deadline",
    ),
}  # fmt: skip


async def first_failure(
    postgres: Postgres, seeds: int = 400, *, start: int = 0, step: int = 1
) -> str:
    """Returns the first violation, or an empty text if there is none. Prints the violation with the
    number of seeds needed to find it."""
    for count, seed in enumerate(range(start, start + seeds * step, step), 1):
        try:
            await run_seed(seed, postgres)
        except Violation as violation:
            print(f"\nseed {seed}, after {count}: {str(violation).splitlines()[-2]}", flush=True)
            return str(violation)

    return ""


@pytest.mark.parametrize("mutation", SQL_MUTATIONS)
async def test_sql_mutation_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, mutation: str
) -> None:
    name, part, replacement, violation = SQL_MUTATIONS[mutation]
    assert part in SQL[name], "the statement has changed: adapt the mutation"
    monkeypatch.setitem(SQL, name, SQL[name].replace(part, replacement))
    assert violation in await first_failure(postgres)


async def test_treating_unknown_as_gone_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = kernel_changes

    def mutated(stored: Any, update: AgentUpdate) -> Any:
        gone = {k for k, v in update.observed.items() if v.state is ObservedState.UNKNOWN}
        seen = {k: v for k, v in update.observed.items() if k not in gone}
        return real(stored, replace(update, observed=seen, absent=update.absent | gone))

    monkeypatch.setattr(reports, "kernel_changes", mutated)
    assert "is stored as GONE" in await first_failure(postgres, start=4)


async def test_treating_an_omitted_kernel_as_gone_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = kernel_changes

    def mutated(stored: Any, update: AgentUpdate) -> Any:
        omitted = {kernel.kernel_id for kernel in stored} - update.observed.keys()
        return real(stored, replace(update, absent=update.absent | omitted))

    monkeypatch.setattr(reports, "kernel_changes", mutated)
    assert "is stored as GONE" in await first_failure(postgres, start=5)


async def test_recreating_an_exited_kernel_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that creates a kernel again although its checkpoint contains that kernel."""
    real = reconcile.reconcile

    def mutated(orders: Any, checkpoint: Any, observed: Any, *rest: Any) -> Any:
        known = {k: v for k, v in checkpoint.items() if observed.get(k) is not ObservedState.EXITED}
        return real(orders, known, {k: v for k, v in observed.items() if k in known}, *rest)

    monkeypatch.setattr(reconcile, "reconcile", mutated)
    assert "was started on" in await first_failure(postgres)
