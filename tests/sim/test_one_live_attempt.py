"""Mutations of the guards of one live attempt. The simulation must detect each by the violation named."""

from __future__ import annotations

import pytest

from moorage.manager.store.queries import SQL

from .database import Postgres
from .test_simulation import first_failure

# Three guards stand behind each other: the planner holds the session, the statement does not place it, and
# the index refuses it. So they are removed together.
NO_GUARD = {
    "pending_sessions": ("CASE WHEN s.attempt > 1 AND coalesce", "CASE WHEN false AND coalesce"),
    "session_place": ("AND (s.attempt = 1 OR", "AND (true OR"),
}
GIVE_UP = """
UPDATE kernels k SET status = CASE WHEN k.status = 'TERMINATING' THEN 'TERMINATED' ELSE 'ERROR' END,
    status_since = now(), observed = 'UNKNOWN', reason = 'agent-lost'
FROM agents a
WHERE a.id = k.agent_id AND a.id = ANY ($1::text[]) AND a.status = 'LOST'
  AND k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')
RETURNING k.session_id
"""


def mutate(monkeypatch: pytest.MonkeyPatch, mutations: dict[str, tuple[str, str]]) -> None:
    for name, (part, replacement) in mutations.items():
        assert part in SQL[name], "the statement has changed: adapt the mutation"
        monkeypatch.setitem(SQL, name, SQL[name].replace(part, replacement))


async def test_placing_a_second_live_attempt_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, NO_GUARD)
    await postgres.fetch("DROP INDEX kernels_one_live_attempt")
    assert "a program runs twice" in await first_failure(postgres)


async def test_ending_kernels_of_a_lost_agent_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SQL, "sessions_of_lost_agents", GIVE_UP)
    assert "and is stored as UNKNOWN" in await first_failure(postgres)


async def test_ignoring_kernels_of_a_lost_agent_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, {"session_snapshots": ("n.status = 'LOST' AND", "false AND")})
    assert "sessions go on without their agent" in await first_failure(postgres)


async def test_ending_kernels_whose_stop_is_late_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = "CASE WHEN m.event = 'stop-overdue' THEN 'TERMINATED' ELSE m.kernel_status END"
    guard = "(m.kernel_status IS NOT NULL OR"
    mutate(monkeypatch, {"session_transition": ("ELSE m.kernel_status END,", f"ELSE {late} END,")})
    mutate(monkeypatch, {"session_transition": (guard, f"{guard} m.event = 'stop-overdue' OR")})
    assert ", and is stored as" in await first_failure(postgres)
