"""Search by a part of a name, as SQL conditions.

No index serves a substring. A search therefore examines a bounded number of rows: of the tables
that keep growing, only the newest.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, func, literal, select

# More sessions than most installations keep.
SEARCHED_ROWS = 200_000


def contains(column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    """Whether the column contains the text, in any case; its ``%`` and ``_`` mean themselves."""
    return column.icontains(part, autoescape=True)


def newest(created_at: Column[Any]) -> ColumnElement[bool]:
    """Whether a row is among the newest of its table, which has an index on this column."""
    oldest = (
        select(created_at).order_by(created_at.desc()).offset(SEARCHED_ROWS).limit(1)
    ).scalar_subquery()
    return created_at > func.coalesce(oldest, literal("-infinity").cast(created_at.type))


def newest_ids(id_: Column[Any]) -> ColumnElement[bool]:
    """Like ``newest``, for a table whose ids are assigned in chronological order."""
    return id_ > select(func.max(id_) - SEARCHED_ROWS).scalar_subquery()
