"""The kind and locks that are read from a migration's statements."""

from __future__ import annotations

import pytest

from moorage.manager.store.schema.migration_locks import describe, tables_of

ALL = "reads and writes"
WRITES = "writes"
ROWS = "rows"
CASES: list[tuple[str, str, dict[str, str]]] = [
    ("CREATE TABLE made (a text); CREATE INDEX ON made (a); ALTER TABLE made ADD b text", "expand", {}),
    ("CREATE TABLE made (a text REFERENCES sessions (id))", "expand", {"sessions": WRITES}),
    ("ALTER TABLE agents ADD COLUMN x text", "expand", {"agents": ALL}),
    ("ALTER TABLE kernels ADD COLUMN x text REFERENCES sessions (id)", "expand",
     {"kernels": ALL, "sessions": WRITES}),
    ("CREATE UNIQUE INDEX one ON sessions (a) WHERE b", "expand", {"sessions": WRITES}),
    ("CREATE TRIGGER t BEFORE INSERT OR UPDATE OF a ON sessions EXECUTE FUNCTION f()", "expand",
     {"sessions": WRITES}),
    ("DROP INDEX sessions_live; DROP INDEX other", "expand", {"sessions": ALL}),
    ("DROP TRIGGER t ON sessions", "expand", {"sessions": ALL}),
    ("UPDATE sessions SET a = 'DROP TABLE agents'", "expand", {"sessions": ROWS}),
    ("UPDATE agents SET a = 1; ALTER TABLE agents ADD COLUMN b text", "expand", {"agents": ALL}),
    ("-- DROP TABLE agents;\nCREATE FUNCTION f() AS $$ BEGIN DROP TABLE agents; END $$", "expand", {}),
    ("DROP FUNCTION f(text); CREATE FUNCTION f(int) AS $x$ 1 $x$", "expand", {}),
    ("DROP FUNCTION f(text)", "contract", {}),
    ("ALTER TABLE agents DROP COLUMN a", "contract", {"agents": ALL}),
    ("ALTER TABLE agents DROP CONSTRAINT a", "expand", {"agents": ALL}),
    ("ALTER TABLE agents RENAME COLUMN a TO b", "contract", {"agents": ALL}),
    ("ALTER TABLE agents ALTER COLUMN a SET NOT NULL", "contract", {"agents": ALL}),
    ("ALTER TABLE agents ALTER COLUMN a TYPE bigint", "contract", {"agents": ALL}),
    ("DROP TABLE agents", "contract", {"agents": ALL}),
]  # fmt: skip


@pytest.mark.parametrize(("statements", "kind", "locks"), CASES)
def test_kind_and_locks(statements: str, kind: str, locks: dict[str, str]) -> None:
    found = describe("0001", "", [statements], {"sessions_live": "sessions"})
    assert (found.kind, {lock.table: lock.blocks for lock in found.locks}) == (kind, locks)


def test_tables_that_statements_create() -> None:
    statements = ["CREATE TABLE a (b text); -- CREATE TABLE c ();", 'CREATE UNLOGGED TABLE "d" ()']
    assert tables_of([*statements, "DROP TABLE e"]) == {"a", "d"}
