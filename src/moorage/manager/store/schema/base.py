"""Base of the table definitions: their metadata and column types."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, MetaData, Table
from sqlalchemy.dialects.postgresql import TIMESTAMP, UUID

metadata = MetaData()
TIME = TIMESTAMP(timezone=True)
ID = UUID(as_uuid=False)


def table(name: str, key: tuple[str, ...], columns: dict[str, Any]) -> Table:
    """Columns by type; ``[type]`` marks a nullable column."""
    made: list[Column[Any]] = []
    for column, kind in columns.items():
        nullable = isinstance(kind, list)
        made.append(
            Column(
                column, kind[0] if nullable else kind, primary_key=column in key, nullable=nullable
            )
        )

    return Table(name, metadata, *made)
