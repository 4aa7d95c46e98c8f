"""Statements in ``store/SUBJECT/sql/*.sql``, loaded once and referred to by their unique names.

A file holds one statement, which has the name of the file, or several, each below a line
``-- name: NAME``.

A line ``-- include: NAME`` is replaced with the text of ``SUBJECT/sql/fragments/NAME.sql``, which
several statements share.

``:NAME``, as in ``status NOT IN (:TERMINAL)``, stands for a set defined in
``common/model/status.py``. Its members become literals, because Postgres cannot match a partial
index to a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from moorage.common.model import status

_STORE = Path(__file__).parents[1]
_HEADING = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include: (\w+)\n", re.MULTILINE)
# No cast: "::" precedes the name of a type.
_SET = re.compile(r"(?<!:):([A-Z_]+)\b")

SETS: Mapping[str, Collection[StrEnum]] = {
    "TERMINAL": status.TERMINAL,
    "STARTING": status.STARTING,
    "STARTING_STEPS": status.STARTING_STEPS,
    "BEFORE_RUNNING": status.BEFORE_RUNNING,
    "WAITING": status.WAITING,
    "IN_ORDERS": status.IN_ORDERS,
    "PLACED": status.PLACED,
    "LIVE": status.LIVE,
    "AWAITING_AGENT": status.AWAITING_AGENT,
    "ORDINARY": status.ORDINARY,
    "ATTENDED": status.ATTENDED,
}


def literals(members: Collection[StrEnum]) -> str:
    """A list in SQL, without parentheses, in the order in which the members are defined."""
    ordered = sorted(members, key=_position)
    return ", ".join(f"'{member}'" for member in ordered)


def _position(member: StrEnum) -> int:
    kind: type[StrEnum] = type(member)
    return list(kind).index(member)


def expand(text: str) -> str:
    """Replace the names of sets with their members. Raises ``KeyError`` for an unknown set."""
    return _SET.sub(lambda match: literals(SETS[match[1]]), text)


def fragment(name: str) -> str:
    """Text of an include. Raises ``KeyError`` for an unknown fragment."""
    return expand(_FRAGMENTS[name].read_text(encoding="utf-8"))


def statements_of(file: Path) -> dict[str, str]:
    """The statements of a file as they are written, by their names. Raises ``ValueError`` if two
    have the same name, or one has none."""
    first, *parts = _HEADING.split(file.read_text(encoding="utf-8"))
    if not parts:
        return {file.stem: first}
    if first.strip():
        raise ValueError(f"{file}: text before the first line `-- name: NAME`: add one above it")

    found: dict[str, str] = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise ValueError(f"{file}: two statements have the name {name}: rename one of them")
        found[name] = text.strip("\n") + "\n"

    return found


def load(files: Iterable[Path]) -> dict[str, str]:
    """The statements of all files by their names, with what they include. Raises ``ValueError`` if
    two have the same name, or one has none."""
    found: dict[str, str] = {}
    sources: dict[str, Path] = {}
    for file in files:
        for name, text in statements_of(file).items():
            if name in sources:
                raise ValueError(
                    f"{sources[name]} and {file} have a statement of the name {name}: rename one"
                )

            found[name] = _INCLUDE.sub(lambda match: fragment(match[1]), expand(text))
            sources[name] = file

    return found


_FRAGMENTS = {file.stem: file for file in _STORE.glob("*/sql/fragments/*.sql")}
SQL: dict[str, str] = load(sorted(_STORE.glob("*/sql/*.sql")))
