"""A thousand seeded worlds of faults, and proof that such a world can fail.

A failing seed prints its story; the line at the end plays just that one again. ``make sim SEEDS=1000``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from moorage.agent.kernel import reconcile
from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState
from moorage.manager.store import reports
from moorage.manager.store.queries import SQL

from .database import Postgres
from .node import Violation
from .world import World

SEEDS = int(os.environ.get("MOORAGE_SEEDS", "1000"))
# Many are played in parts, which may run side by side.
COUNT = 4 if SEEDS >= 400 else 1
PARTS = [range(SEEDS * part // COUNT, SEEDS * (part + 1) // COUNT) for part in range(COUNT)]
TRUNCATE_EVERY = 50


async def play(seed: int, postgres: Postgres) -> World:
    """One seed from its beginning to its end. Raises ``Violation`` with the whole story."""
    await postgres.clear(truncate=seed % TRUNCATE_EVERY == 0)
    world = World(seed, postgres)
    try:
        await world.run()
    except Exception as error:
        story = "\n".join(world.story)
        raise Violation(
            f"seed {seed}:\n{story}\n{type(error).__name__}: {error}\n"
            f"again: MOORAGE_SEED={seed} .venv/bin/pytest tests/sim -k replay"
        ) from error
    finally:
        await world.end()
    return world


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seeds", PARTS, ids=lambda part: f"{part.start}-{part.stop - 1}")
async def test_seeds(postgres: Postgres, seeds: range) -> None:
    statements = kernels = 0
    for seed in seeds:
        world = await play(seed, postgres)
        kernels += len(world.starts)
        statements += len(world.story)
    print(f"\n{len(seeds)} seeds, {statements} steps, {kernels} kernels started, 0 violations")
    assert kernels > len(seeds), "worlds in which nothing happens prove nothing"


async def test_replay(postgres: Postgres) -> None:
    """The seed in ``MOORAGE_SEED``, with its story. Twice: the same seed is the same story."""
    seed = int(os.environ.get("MOORAGE_SEED", "7"))
    first = await play(seed, postgres)
    print("\n".join(first.story))
    assert (await play(seed, postgres)).story == first.story


# -- the world can fail: one rule broken at a time --

FREED_AT_GIVE_UP = """), freed AS (
    UPDATE allocations a SET released_at = now() FROM moved m, kernels k
    WHERE k.session_id = m.id AND a.kernel_id = k.id AND a.released_at IS NULL
      AND m.new IN ('TERMINATED', 'ERROR')
    RETURNING a.agent_id, a.slot, a.device_id, a.amount
), uncounted AS (
    UPDATE agent_slots c SET used = c.used - x.amount
    FROM (SELECT agent_id, slot, device_id, sum(amount)::bigint AS amount FROM freed GROUP BY 1, 2, 3) x
    WHERE (c.agent_id, c.slot, c.device_id) = (x.agent_id, x.slot, x.device_id)
), fresh AS ("""

# What is broken: the statement, what stands in it, and what is put there instead.
BROKEN_SQL = {
    "devices are freed when a kernel is given up": ("session_move", "), fresh AS (", FREED_AT_GIVE_UP),
    "a move sets no deadline": (
        "session_move", "now() + make_interval(secs => i.deadline_s)", "NULL::timestamptz",
    ),
    "kernels of lost agents are forgotten": ("kernels_lost", "a.status = 'LOST'", "a.status = 'NEVER'"),
}  # fmt: skip


async def first_failure(postgres: Postgres, seeds: int = 600, *, start: int = 0) -> str:
    for seed in range(start, start + seeds):
        try:
            await play(seed, postgres)
        except Violation as found:
            return str(found)
    return ""


@pytest.mark.parametrize("rule", BROKEN_SQL)
async def test_a_broken_statement_is_found(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    name, stands, instead = BROKEN_SQL[rule]
    assert stands in SQL[name], "the statement has changed: break it in its new form"
    monkeypatch.setitem(SQL, name, SQL[name].replace(stands, instead))
    assert "again: MOORAGE_SEED=" in await first_failure(postgres)


# Where statements ask whether the stream that they write for is its agent's newest.
ASKS = {
    "agent_upsert": "excluded.stream = 0",
    "agent_beat": "a.stream = i.stream",
    "agent_slots_put": "a.stream = s.stream",
    "kernel_observe": "a.stream = i.stream",
    "allocation_release": "a.stream = i.stream",
}


async def test_to_believe_an_agents_older_stream_is_found(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, asks in ASKS.items():
        assert asks in SQL[name], "the statement has changed: break it in its new form"
        monkeypatch.setitem(SQL, name, SQL[name].replace(asks, "TRUE"))
    # Two streams of one agent have to cross for it, in one world of two hundred: begin shortly before one.
    assert "gone says" in await first_failure(postgres, start=330)


async def test_to_take_unknown_for_gone_is_found(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    real = reports.kernel_changes

    def hasty(stored: Any, seen: Mapping[KernelId, Observation], accepted: Any) -> Any:
        gone = {k: v for k, v in seen.items() if v.state is not ObservedState.UNKNOWN}
        return real(stored, gone, frozenset(k for k, _, _ in stored))

    monkeypatch.setattr(reports, "kernel_changes", hasty)
    assert await first_failure(postgres)


async def test_to_take_a_kernel_for_gone_because_a_report_leaves_it_out_is_found(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = reports.kernel_changes

    def hasty(stored: Any, seen: Mapping[KernelId, Observation], accepted: Any) -> Any:
        left_out = {
            k: Observation(k, s, ObservedState.GONE, reason=Reason.KERNEL_GONE)
            for k, s, _ in stored
            if k not in seen
        }
        return real(stored, {**seen, **left_out}, accepted)

    monkeypatch.setattr(reports, "kernel_changes", hasty)
    assert await first_failure(postgres)


async def test_an_agent_that_obeys_old_orders_is_found(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is begun again although the ledger knows it."""
    real = reconcile.reconcile

    def forgetful(orders: Any, ledger: Any, observed: Any) -> Any:
        known = {k: v for k, v in ledger.items() if observed.get(k) is not ObservedState.EXITED}
        return real(orders, known, {k: v for k, v in observed.items() if k in known})

    monkeypatch.setattr(reconcile, "reconcile", forgetful)
    assert "was started on" in await first_failure(postgres)
