"""Mutations of the guards that ensure a single live attempt. The simulation must detect each with
the named violation."""

from __future__ import annotations

import pytest

from moorage.manager.store.database.queries import SQL

from .database import Postgres
from .test_simulation import first_failure

# tests/mutations/catalog.py removes each of these guards alone, and tests/store kills those
# mutations.
pytestmark = pytest.mark.slow

# Three guards back one another up: the planner holds the session, the statement does not place it,
# and the index refuses it. They are therefore removed together.
NO_GUARD = {
    "pending_sessions": (
        "WHERE s.attempt > 1 AND e.session_id = s.id",
        "WHERE false AND e.session_id = s.id",
    ),
    "session_place": ("AND (s.attempt = 1\n", "AND (true\n"),
}


# Every session is treated as one whose attempts may overlap. The index exempts those sessions.
_OVERLAP = "coalesce(s.spec ->> 'overlap',{}CASE WHEN s.endpoint_id IS NOT NULL THEN 'allowed' END)"
OVERLAP = {
    "pending_sessions": (_OVERLAP.format("\n" + " " * 26), "'allowed'"),
    "session_place": (_OVERLAP.format(" "), "'allowed'"),
}


def mutate(monkeypatch: pytest.MonkeyPatch, mutations: dict[str, tuple[str, str]]) -> None:
    for name, (part, replacement) in mutations.items():
        assert part in SQL[name], "the statement has changed: adapt the mutation"
        monkeypatch.setitem(SQL, name, SQL[name].replace(part, replacement))


async def test_placing_a_second_live_attempt_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, NO_GUARD)
    await postgres.fetch("DROP INDEX kernels_one_live_attempt")
    assert "a program runs twice" in await first_failure(postgres, start=150)


async def test_letting_attempts_overlap_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, OVERLAP)
    assert "a program runs twice" in await first_failure(postgres, start=124)
