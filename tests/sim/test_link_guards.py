"""Guards of the agent link. The tests remove one guard at a time, and the simulation must name the
violation that this guard prevents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moorage.common.link.messages import Report, ReportDelta
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.rpc.agent_stream import AgentStream

from .database import Postgres
from .test_clock_guards import change_sql
from .test_simulation import first_failure


async def test_ending_kernels_that_are_still_ordered_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: a kernel is considered absent while orders that name it are in transit, and the
    agent then starts it."""
    real = AgentStream.update

    def mutated(stream: AgentStream, message: Report | ReportDelta, now: float) -> AgentUpdate:
        update = real(stream, message, now)
        missing = update.unacknowledged - update.observed.keys()
        return replace(update, absent=update.absent | missing)

    monkeypatch.setattr(AgentStream, "update", mutated)
    assert "is stored as GONE" in await first_failure(postgres, start=4)


async def test_forgetting_what_is_absent_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that must not run and does not run is never released."""
    real = AgentStream.update

    def mutated(stream: AgentStream, message: Report | ReportDelta, now: float) -> AgentUpdate:
        return replace(real(stream, message, now), absent=frozenset())

    monkeypatch.setattr(AgentStream, "update", mutated)
    assert "remaining: " in await first_failure(postgres)


async def test_placing_on_an_agent_without_a_connection_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = " AND a.detached_stream IS DISTINCT FROM a.stream"
    change_sql(monkeypatch, "agent_states", connected, "")
    change_sql(monkeypatch, "agent_states_by_id", connected, "")
    change_sql(monkeypatch, "session_place", f"{connected}\n", "\n")
    assert "which has no connection" in await first_failure(postgres)
