"""Mutations of the code that protects a restored database, and of commits that wait for the disk.
The simulation must detect each with the named violation. Each check starts shortly before a seed
that finds it."""

from __future__ import annotations

import pytest

from moorage.agent.runtimes.simulated import KernelScript
from moorage.common.model.pipelines import PipelineSpec
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.kernels.orders import OrderStore

from .database import Postgres, SimulatedConnection, SimulatedDatabase
from .node import Violation
from .pipelines import submit
from .simulation import Simulation
from .test_clock_guards import change_sql
from .test_simulation import first_failure, run_seed_of
from .workload import simulated


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
    """Two guards back each other up: the restore raises the number, and so do agent reports."""
    change_sql(monkeypatch, "restored", "(extract(epoch FROM now()) * 1000)::bigint", "1")
    monkeypatch.setattr(OrderStore, "note_generation", lambda store, seen: None)
    assert "after the restore of a backup" in await first_failure(postgres, start=2, step=3)


class LostSteps(Simulation):
    """The second step of a pipeline runs when a backup is restored that has both as pending. By
    then, the agent has no record of the first step. ``node_restarts``: it has no record of the
    second step either."""

    node_restarts = False

    async def run(self, steps: int = 0) -> None:
        self.faults = False
        [node] = self.nodes = self.nodes[:1]
        self.connect(node)
        made = PipelineSpec.model_validate(
            {"name": "p", "steps": [_step("first", 3), _step("second", 60) | {"after": ["first"]}]}
        )
        await submit(self.managers[0].store, made)
        backup = await self._back_up()
        for _ in range(8):
            await self.run_all(3)

        [(status,)] = await self.postgres.fetch(
            "SELECT status FROM sessions WHERE name LIKE 'second%'"
        )
        assert (status, len(node.programs())) == ("RUNNING", 1)
        await self._restore(backup)

        if self.node_restarts:
            node.lose_disk()
            node.reboot()
            node.restart()

        for _ in range(30):
            await self.run_all(3)
            await self.check_pipelines()


class ForgottenSteps(LostSteps):
    node_restarts = True


def _step(name: str, run_s: float) -> dict[str, object]:
    script = simulated(KernelScript(run_s=run_s))
    return {"name": name, "spec": {"type": "batch", "command": script, "resources": {"cpu": 1}}}


async def _history(postgres: Postgres, step: str) -> list[tuple[str, str]]:
    rows = await postgres.fetch(
        "SELECT h.event, h.detail FROM session_history h JOIN sessions s ON s.id = h.session_id "
        "WHERE s.name LIKE $1 || '-%' ORDER BY h.revision",
        step,
    )
    return [(row["event"], row["detail"]) for row in rows]


async def test_a_step_that_had_begun_ends_before_what_it_waited_for_runs_again(
    postgres: Postgres,
) -> None:
    """It is not started a second time."""
    await run_seed_of(LostSteps, 2, postgres)
    events = await _history(postgres, "second")
    assert [event for event, _ in events] == ["created", "placed", "ready", "ended"]
    assert events[1][1] == "on node-0, where it has run; the database had lost this placement"
    assert ("placed", "on node-0") in await _history(postgres, "first")


async def test_a_step_that_begins_anew_after_a_restore_waits_for_its_conditions(
    postgres: Postgres,
) -> None:
    await run_seed_of(ForgottenSteps, 2, postgres)
    assert ("placed", "on node-0") in await _history(postgres, "second")


async def test_beginning_a_step_anew_too_early_after_a_restore_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore loses the sessions that steps wait for."""
    change_sql(
        monkeypatch,
        "restored",
        "WITH generation",
        "WITH lost AS (DELETE FROM session_dependencies), generation",
    )
    with pytest.raises(
        Violation, match=r"'second', -1\) begins, and \('first', -1\) success is not met"
    ):
        await run_seed_of(ForgottenSteps, 2, postgres)
