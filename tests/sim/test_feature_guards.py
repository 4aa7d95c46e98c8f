"""Mutations of the guards for pipelines, reuse and the ledger. The simulation must detect each with
the named violation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from moorage.manager.store.database.queries import SQL
from moorage.manager.store.schema.database_functions import function_statements

from .database import Postgres
from .test_simulation import first_failure

# The statement, a part of it, its replacement, the violation, and the seed to start with.
MUTATIONS = {
    "a step after a success begins after any end": (
        "pipeline_create", "SELECT d.session_id, d.depends_on, d.condition",
        "SELECT d.session_id, d.depends_on, 'any'", "is not met", 3,
    ),
    "a pending step does not wait for the new run": (
        "pipeline_create", "UPDATE session_dependencies d SET depends_on = r.new",
        "UPDATE session_dependencies d SET depends_on = r.old", "is not met", 39,
    ),
    "a pipeline is created without its first step": (
        "pipeline_create", "WHERE NOT EXISTS (SELECT FROM refused)\n)\nSELECT",
        "WHERE NOT EXISTS (SELECT FROM refused) AND i.n > 1\n)\nSELECT", "gets runs of", 3,
    ),
    "a step waits for what has failed": (
        "session_snapshots", "END AS failed_dependencies", "END || NULL AS failed_dependencies",
        "waits, and a condition has failed", 3,
    ),
    "what shares a run has succeeded": (
        "session_snapshots", "o.result AS shared_result", "'SUCCESS' AS shared_result",
        "did not end as it", 9,
    ),
}  # fmt: skip
# The part that records charges, and the seed to start with.
CHARGES = {
    "DROP TRIGGER sessions_charge_lost ON sessions": 17,
    "DROP TRIGGER agents_note_return ON agents": 63,
}


# These mutations are also in session_catalog.py and metering_catalog.py of tests/mutations, where
# tests/store kills them.
KILLED_ELSEWHERE = {
    "a step after a success begins after any end",
    "a pending step does not wait for the new run",
    "DROP TRIGGER sessions_charge_lost ON sessions",
}


def cases(names: Iterable[str]) -> list[Any]:
    return [
        pytest.param(name, marks=[pytest.mark.slow] * (name in KILLED_ELSEWHERE)) for name in names
    ]


@pytest.mark.parametrize("mutation", cases(MUTATIONS))
async def test_mutation_of_a_statement_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, mutation: str
) -> None:
    name, part, replacement, violation, start = MUTATIONS[mutation]
    assert part in SQL[name], "the statement has changed: adapt the mutation"
    monkeypatch.setitem(SQL, name, SQL[name].replace(part, replacement))
    assert violation in await first_failure(postgres, start=start, step=4)


async def test_an_array_without_its_limit_is_detected(postgres: Postgres) -> None:
    part = "session AND p.turn = 'waiting'"
    [text] = [text for text in function_statements().values() if part in text]
    await postgres.fetch(text.replace(part, "session AND false"))
    assert "run at once" in await first_failure(postgres, start=3, step=4)


async def test_a_skipped_step_that_should_have_run_is_detected(postgres: Postgres) -> None:
    """Mutation: a step that should follow a failure is skipped like one that should follow a
    success."""
    await postgres.fetch(
        "CREATE OR REPLACE FUNCTION dependency_state(condition text, status text, result text) RETURNS text "
        "LANGUAGE sql IMMUTABLE AS $$ SELECT CASE "
        "WHEN status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR') THEN 'unmet' "
        "WHEN condition = 'any' OR result = 'SUCCESS' THEN 'met' ELSE 'failed' END $$"
    )
    found = await first_failure(postgres, start=3, step=4)
    assert "is not met" in found or "none of its conditions has failed" in found


async def test_equal_requests_that_run_at_once_are_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two guards back each other up: the statement finds a live run, and the index refuses a second
    one."""
    await postgres.fetch("DROP INDEX sessions_shared_run")
    part = "i.policy IN ('live', 'both')"
    assert part in SQL["reuse_find"], "the statement has changed: adapt the mutation"
    monkeypatch.setitem(SQL, "reuse_find", SQL["reuse_find"].replace(part, "false"))
    assert "equal requests run at once" in await first_failure(postgres, start=1, step=4)


@pytest.mark.parametrize("mutation", cases(CHARGES))
async def test_what_is_charged_wrongly_is_detected(postgres: Postgres, mutation: str) -> None:
    await postgres.fetch(mutation)
    assert "is charged" in await first_failure(postgres, start=CHARGES[mutation])


async def test_a_template_that_changes_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: the newest version is overwritten instead of adding a new one."""
    await postgres.fetch("DROP TRIGGER templates_keep_versions ON templates")
    monkeypatch.setitem(
        SQL,
        "template_put",
        "INSERT INTO templates (project, name, version, body, bases, created_by, isolated) "
        "SELECT $1, $2, 1, $3::jsonb, $4, $5, $7 WHERE $6::bigint[] IS NULL "
        "ON CONFLICT (project, name, version) DO UPDATE SET body = excluded.body RETURNING *",
    )
    found = await first_failure(postgres, start=55, step=4)
    assert "templates are gone or have changed" in found or "is not what t@1 makes" in found
