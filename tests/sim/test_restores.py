"""Mutations of what protects a restored database, and of commits that wait for the disk. The simulation must
detect each by the violation named. Each check begins shortly before a seed that finds it."""

from __future__ import annotations

import pytest

from moorage.manager.store.orders import OrderStore
from moorage.manager.store.queries import SQL

from .database import Postgres, SimulatedConnection, SimulatedDatabase
from .test_clock_guards import change_sql
from .test_simulation import first_failure


async def test_placing_on_agents_that_run_unknown_kernels_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = "WHERE NOT EXISTS"
    assert guard in SQL["kernels_unknown"], "the statement has changed: adapt the mutation"
    statement = SQL["kernels_unknown"].replace(guard, "WHERE false AND NOT EXISTS")
    monkeypatch.setitem(SQL, "kernels_unknown", statement)
    found = (await first_failure(postgres, start=41, step=3)).splitlines()[-2]
    assert "of 1000 shares of device" in found or "a program runs twice" in found


async def test_acknowledging_commits_that_have_not_reached_the_disk_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_durable(self: SimulatedDatabase, *, durable: bool = True) -> SimulatedConnection:
        return SimulatedConnection(self, False)

    monkeypatch.setattr(SimulatedDatabase, "dedicated_connection", never_durable)
    assert "acknowledged sessions are missing" in await first_failure(postgres, start=5, step=3)


async def test_repeating_generations_after_a_restore_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two guards stand behind each other: the restore raises the number, and so do the reports of agents."""
    change_sql(monkeypatch, "restored", "(extract(epoch FROM now()) * 1000)::bigint", "1")
    monkeypatch.setattr(OrderStore, "note_generation", lambda store, seen: None)
    assert "after the restore of a backup" in await first_failure(postgres, start=2, step=3)
