"""The migrations that a database still needs, read from their files; nothing is sent to the
database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.manager.store.schema.migration_locks import Migration, describe, indexes_of, tables_of

if TYPE_CHECKING:
    from alembic.script import Script

_MIGRATIONS = Path(__file__).parent / "migrations"


def migration_scripts(migrations: Path = _MIGRATIONS) -> list[Script]:
    """All migrations, in order. Raises Alembic's ``CommandError`` if two follow the same one."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(migrations))
    newest_first = ScriptDirectory.from_config(config).walk_revisions(head="head")
    return list(newest_first)[::-1]


def pending_migrations(revision: str | None) -> list[Migration]:
    """The migrations after ``revision``, in order; None means all of them."""
    found = []
    indexes: dict[str, str] = {}
    for script in migration_scripts():
        statements = _statements(script)
        if revision is None or script.revision > revision:
            title = _title(script.module.__doc__ or "")
            found.append(describe(script.revision, title, statements, indexes))

        indexes |= indexes_of(statements)

    return found


def known_tables() -> frozenset[str]:
    """All tables that a database for this release may have."""
    made = (tables_of(_statements(script)) for script in migration_scripts())
    return frozenset({"alembic_version"}.union(*made))


def _statements(script: Script) -> Sequence[str]:
    """The statements, as the migration sends them."""
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

    written = _Statements()
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": written}
    )
    with Operations.context(context):
        script.module.upgrade()

    return written.statements


def _title(docstring: str) -> str:
    """Its first sentence."""
    return " ".join(docstring.split("\n\n")[0].split()).split(". ")[0].rstrip(".")


class _Statements:
    """A file into which Alembic writes one statement at a time."""

    def __init__(self) -> None:
        self._written: list[str] = []

    def write(self, text: str) -> None:
        self._written.append(text)

    def flush(self) -> None:
        pass

    @property
    def statements(self) -> Sequence[str]:
        return self._written
