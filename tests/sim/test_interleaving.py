"""Mutations of the code that makes concurrent transactions safe. Only interleaved transactions
detect them."""

from __future__ import annotations

import pytest

from .database import Postgres
from .test_clock_guards import change_sql
from .test_simulation import first_failure

# The distance between seeds whose transactions interleave. Each check starts shortly before a seed
# that finds the mutation.
INTERLEAVED = 6


@pytest.mark.parametrize(
    ("statement", "start"), [("session_transition", 435), ("session_place", 219)]
)
async def test_term_that_is_not_locked_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, statement: str, start: int
) -> None:
    """Another manager becomes leader between the statement and its commit."""
    change_sql(monkeypatch, statement, "expires_at > now() FOR SHARE", "expires_at > now()")
    found = await first_failure(postgres, start=start, step=INTERLEAVED)
    assert "a leader of term" in found.splitlines()[-2], found
