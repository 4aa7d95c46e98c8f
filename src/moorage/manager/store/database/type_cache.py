"""Connections that share asyncpg's queries about built-in types.

asyncpg has codecs for built-in types but not for arrays of them, so each connection queries the
catalog for every combination of array types that occurs in a statement. The query takes Postgres 3
to 5 ms, more than most of the store's statements, and its answer never changes.
"""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import asyncpg

# Object identifiers below this one are assigned by hand in the Postgres source, and never change:
# https://www.postgresql.org/docs/current/system-catalog-initial-data.html#SYSTEM-CATALOG-OID-ASSIGNMENT
_FIRST_CHANGING_OID = 10_000
# For each set of types, the rows that describe them and the types of their elements.
DESCRIPTIONS: dict[frozenset[int], list[asyncpg.Record]] = {}
# asyncpg asks whether reading the catalog has replaced the unnamed statement that it was preparing.
_NO_STATEMENT = SimpleNamespace(name="from the cache")


class TypeCachingConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """Passed to ``asyncpg.connect`` as ``connection_class``. It overrides a method that is not
    public: if a release of asyncpg renames it, connections query again, and a store test fails."""

    __slots__ = ()

    async def _introspect_types(
        self, typeoids: Collection[int], timeout: float | None
    ) -> tuple[list[asyncpg.Record], Any]:
        wanted = frozenset(typeoids)
        if wanted in DESCRIPTIONS:
            return DESCRIPTIONS[wanted], _NO_STATEMENT
        rows, statement = await super()._introspect_types(typeoids, timeout)
        if all(oid < _FIRST_CHANGING_OID for oid in wanted):
            DESCRIPTIONS[wanted] = rows
        return rows, statement
