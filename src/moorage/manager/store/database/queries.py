"""Statements in ``store/SUBJECT/sql/*.sql``, one per file, loaded once and referred to by the
file's unique name.

A line ``-- include: NAME`` stands for the text of ``SUBJECT/sql/fragments/NAME.sql``, which several
statements share.

``:NAME``, as in ``status NOT IN (:TERMINAL)``, stands for a set defined in
``common/model/status.py``. Its members become literals, because Postgres cannot match a partial
index to a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path

from moorage.common.model import status

_STORE = Path(__file__).parents[1]
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
    """A list in SQL, without parentheses, in the order of the members' definition."""
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


def _statement(file: Path) -> str:
    text = expand(file.read_text(encoding="utf-8"))
    return _INCLUDE.sub(lambda match: fragment(match[1]), text)


_FRAGMENTS = {file.stem: file for file in _STORE.glob("*/sql/fragments/*.sql")}
SQL: dict[str, str] = {file.stem: _statement(file) for file in sorted(_STORE.glob("*/sql/*.sql"))}
