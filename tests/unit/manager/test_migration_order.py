"""The order of the migrations: they are applied one after the other in the order of their names,
which also serves to compare schemas."""

from __future__ import annotations

import re
import shutil
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from alembic.util import CommandError

from moorage.manager.store.schema import migrations
from moorage.manager.store.schema.baseline import OLDEST_SCHEMA
from moorage.manager.store.schema.database_functions import functions_digest
from moorage.manager.store.schema.migrate import newest_revision
from moorage.manager.store.schema.pending_migrations import migration_scripts

MIGRATIONS = Path(migrations.__file__).parent
MIGRATION = """
revision = "{revision}"
down_revision = "{after}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the migrations to which more can be added."""
    return shutil.copytree(
        MIGRATIONS, tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__")
    )


def add(folder: Path, revision: str, after: str) -> None:
    file = folder / "versions" / f"{revision}_added.py"
    file.write_text(MIGRATION.format(revision=revision, after=after))


def test_each_follows_the_one_before_it_and_has_a_later_name() -> None:
    scripts = migration_scripts()
    assert (scripts[0].revision, scripts[0].down_revision) == (OLDEST_SCHEMA, None)
    assert [after.down_revision for after in scripts[1:]] == [
        script.revision for script in scripts[:-1]
    ]
    assert [(one.revision, after.revision) for one, after in pairwise(scripts)
            if one.revision >= after.revision] == []  # fmt: skip
    assert newest_revision() == scripts[-1].revision


def test_they_are_named_by_their_time() -> None:
    for script in migration_scripts():
        assert Path(script.path).name.startswith(f"{script.revision}_")
        assert re.fullmatch(r"\d{12}", script.revision), "name it by the time: YYYYMMDDhhmm_name.py"
        assert datetime.strptime(script.revision, "%Y%m%d%H%M").year >= 2026


def test_a_changed_function_comes_with_a_migration() -> None:
    """It makes managers apply it, and shows which of two releases is newer."""
    digests = [
        script.module.functions
        for script in migration_scripts()
        if hasattr(script.module, "functions")
    ]
    assert digests[-1] == functions_digest(), (
        f'write a migration with functions = "{functions_digest()}": a text in functions/ differs'
    )


def test_one_more_is_the_newest(copied: Path) -> None:
    add(copied, "999901010000", newest_revision())
    assert [one.revision for one in migration_scripts(copied)][-2:] == [
        newest_revision(),
        "999901010000",
    ]


def test_two_that_follow_the_same_one_are_refused(copied: Path) -> None:
    add(copied, "999901010000", newest_revision())
    add(copied, "999901010001", newest_revision())
    with pytest.raises(CommandError, match=r"[Mm]ultiple head"):
        migration_scripts(copied)
