"""The statements in ``sql/*.sql``, one per file, loaded once and called by the file's name.

A line ``-- include: NAME`` stands for the text of ``sql/fragments/NAME.sql``, which several
statements share.
"""

from __future__ import annotations

import re
from pathlib import Path

_DIRECTORY = Path(__file__).parent / "sql"
_INCLUDE = re.compile(r"^-- include: (\w+)\n", re.MULTILINE)


def _statement(file: Path) -> str:
    return _INCLUDE.sub(
        lambda match: (_DIRECTORY / "fragments" / f"{match[1]}.sql").read_text(encoding="utf-8"),
        file.read_text(encoding="utf-8"),
    )


SQL: dict[str, str] = {file.stem: _statement(file) for file in sorted(_DIRECTORY.glob("*.sql"))}
