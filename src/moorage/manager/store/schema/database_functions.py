"""Functions of the database, one per file in ``functions/``, named as the file.

Each run of the migrations replaces all of them, in the same transaction: a file says what a
function is, not how it came to be. ``CREATE OR REPLACE`` locks no table and disturbs no statement,
and triggers, which lock tables, belong to the migrations. Managers of the release before call the
functions of this one, so a signature never changes: another one is another function, and a
migration drops the former one a release later.

``:NAME`` stands for a set of statuses, as in ``queries.py``. A changed text needs a migration that
names its digest: it makes the run happen, and orders the releases.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from moorage.manager.store.database.queries import expand

_DIRECTORY = Path(__file__).parent / "functions"


def function_statements() -> dict[str, str]:
    """The statements that make the functions, by their names."""
    return {
        file.stem: expand(file.read_text(encoding="utf-8"))
        for file in sorted(_DIRECTORY.glob("*.sql"))
    }


def functions_digest() -> str:
    """Digest of all statements, for ``functions`` of the migration that changes one."""
    return hashlib.sha256("\n".join(function_statements().values()).encode()).hexdigest()[:16]
