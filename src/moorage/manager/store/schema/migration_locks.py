"""Effects of a migration on a running cluster: whether it only adds, and which locks it takes.
Pure.

They are derived from its statements, not declared; a test compares the locks with those that
Postgres reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["expand", "contract"]
# Statements that wait while the lock is held, from fewest to most. Statements that write rows lock
# only those rows.
Blocks = Literal["rows", "writes", "reads and writes"]
_ORDER: tuple[Blocks, ...] = ("rows", "writes", "reads and writes")

_NAME = r"\"?(?:public\.)?(\w+)\"?"
_BODY = re.compile(r"[$](\w*)[$].*?[$]\1[$]", re.DOTALL)
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# By statement; the last group that matches is the table.
_ALTERED: dict[str, Blocks] = {
    rf"ALTER TABLE (?:IF EXISTS )?(?:ONLY )?{_NAME}": "reads and writes",
    rf"DROP TABLE (?:IF EXISTS )?{_NAME}": "reads and writes",
    rf"TRUNCATE (?:TABLE )?{_NAME}": "reads and writes",
    rf"DROP TRIGGER (?:IF EXISTS )?\w+ ON {_NAME}": "reads and writes",
    rf"CREATE (?:OR REPLACE )?(?:CONSTRAINT )?TRIGGER .*? ON {_NAME}": "writes",
    rf"CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?(?:\w+ )?ON (?:ONLY )?{_NAME}": "writes",
    rf"(?:WITH .*?\b)?UPDATE (?:ONLY )?{_NAME}": "rows",
    rf"(?:WITH .*?\b)?DELETE FROM (?:ONLY )?{_NAME}": "rows",
    rf"(?:WITH .*?\b)?INSERT INTO {_NAME}": "rows",
}
_LOCKS = [(re.compile(pattern, re.IGNORECASE), blocks) for pattern, blocks in _ALTERED.items()]
_INDEX = re.compile(
    rf"^CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?(?!ON )(\w+) ON (?:ONLY )?{_NAME}",
    re.IGNORECASE,
)
_INDEX_DROPPED = re.compile(r"^DROP INDEX (?:IF EXISTS )?(\w+)", re.IGNORECASE)
_REFERENCES = re.compile(rf"\bREFERENCES {_NAME}", re.IGNORECASE)
_CREATED = re.compile(rf"^CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?{_NAME}", re.IGNORECASE)
_RENAMED = re.compile(rf"^ALTER TABLE {_NAME} RENAME TO {_NAME}", re.IGNORECASE)
# Changes to objects that the previous release may still use, or to columns that it would now have
# to fill.
_CONTRACTS = re.compile(
    r"\bDROP (?:COLUMN|TABLE|FUNCTION|VIEW|TYPE)\b|\bRENAME\b|\bSET NOT NULL\b|\bTYPE \w|\bDROP "
    r"DEFAULT\b",
    re.IGNORECASE,
)
_FUNCTION_DROPPED = re.compile(rf"^DROP FUNCTION (?:IF EXISTS )?{_NAME}", re.IGNORECASE)
_FUNCTION_MADE = re.compile(rf"^CREATE (?:OR REPLACE )?FUNCTION {_NAME}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TableLock:
    """An existing table, and the statements that wait while the migration runs."""

    table: str
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class Migration:
    """``expand``: managers of the previous release continue to work with it. ``contract``: it
    removes something that releases before the previous one may still use. ``locks``: by table, the
    strongest lock on each."""

    revision: str
    title: str
    kind: Kind
    locks: tuple[TableLock, ...]


def indexes_of(statements: Iterable[str]) -> dict[str, str]:
    """The tables of the indexes that ``statements`` create, by index name."""
    plain = (statement for text in statements for statement in _plain(text))
    return {
        match[1].lower(): match[2].lower()
        for statement in plain
        if (match := _INDEX.match(statement))
    }


def tables_of(statements: Iterable[str]) -> set[str]:
    """The tables that ``statements`` create."""
    plain = (statement for text in statements for statement in _plain(text))
    return {match[1].lower() for statement in plain if (match := _CREATED.match(statement))}


def describe(
    revision: str, title: str, statements: Iterable[str], indexes: Mapping[str, str] | None = None
) -> Migration:
    """Describe a migration. ``statements``: as the migration sends them; each is one statement, or
    several separated by semicolons. ``indexes``: the tables of the existing indexes, by index
    name."""
    plain = [statement for text in statements for statement in _plain(text)]
    created = {match[1].lower() for statement in plain if (match := _CREATED.match(statement))}
    created |= {match[2].lower() for statement in plain if (match := _RENAMED.match(statement))}
    made = {match[1].lower() for statement in plain if (match := _FUNCTION_MADE.match(statement))}
    strongest: dict[str, Blocks] = {}
    for statement in plain:
        for table, blocks in _locks(statement, indexes or {}):
            if table not in created:
                strongest[table] = max(strongest.get(table, "rows"), blocks, key=_ORDER.index)

    contracts = any(_is_contract(statement, made, created) for statement in plain)
    return Migration(
        revision,
        title,
        "contract" if contracts else "expand",
        tuple(TableLock(table, blocks) for table, blocks in sorted(strongest.items())),
    )


def _plain(text: str) -> Iterator[str]:
    """The migration's statements on one line each, without comments, literals and function
    bodies."""
    bare = _LITERAL.sub("''", _COMMENT.sub(" ", _BODY.sub("''", text)))
    for statement in bare.split(";"):
        if line := " ".join(statement.split()):
            yield line


def _locks(statement: str, indexes: Mapping[str, str]) -> Iterator[tuple[str, Blocks]]:
    if (match := _INDEX_DROPPED.match(statement)) and (table := indexes.get(match[1].lower())):
        yield table, "reads and writes"
    for pattern, blocks in _LOCKS:
        if match := pattern.match(statement):
            yield match[1].lower(), blocks
            break
    if statement[:6].upper() in ("CREATE", "ALTER "):
        for match in _REFERENCES.finditer(statement):
            yield match[1].lower(), "writes"


def _is_contract(statement: str, made: set[str], created: set[str]) -> bool:
    """Whether a statement removes something. Recreating a function merely changes it, and nothing
    else uses a table that this migration creates."""
    if match := _FUNCTION_DROPPED.match(statement):
        return match[1].lower() not in made
    if statement[:4].upper() not in ("ALTE", "DROP"):
        return False

    table = next(
        (match[1].lower() for pattern, _ in _LOCKS if (match := pattern.match(statement))), ""
    )
    return table not in created and bool(_CONTRACTS.search(statement))
