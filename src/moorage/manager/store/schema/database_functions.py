"""Database functions, one per file in ``functions/``, each named like its file.

Each run of the migrations replaces all of them, in the same transaction, so a file states a
function's current definition, not its history. ``CREATE OR REPLACE`` locks no table and disturbs no
statement, and triggers, which lock tables, belong to the migrations. Managers of the previous
release call the functions of this one, so a signature never changes: a different signature is a
different function, and a migration drops the former function one release later.

``:NAME`` stands for a set of statuses, as in ``queries.py``. A change to a function needs a
migration that names the new digest. This causes the migrations to run, and puts the releases in
order.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from moorage.manager.store.database.queries import expand

_DIRECTORY = Path(__file__).parent / "functions"


def function_statements() -> dict[str, str]:
    """The statements that create the functions, by function name."""
    return {
        file.stem: expand(file.read_text(encoding="utf-8"))
        for file in sorted(_DIRECTORY.glob("*.sql"))
    }


def functions_digest() -> str:
    """Digest of all statements, for ``functions`` in the migration that changes one."""
    return hashlib.sha256("\n".join(function_statements().values()).encode()).hexdigest()[:16]
