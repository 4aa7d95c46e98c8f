"""Keyset pagination: the pages of every listing, and the opaque cursors between them.

A cursor holds its listing's order and the sort values of the last item on a page. The next page
begins after these values, so inserts and deletes between two pages neither repeat nor skip an item
that was there throughout.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    bindparam,
    literal,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP, UUID
from sqlalchemy.types import NullType, TypeEngine

from moorage.common.model.errors import InvalidInput
from moorage.common.model.paging import Paging
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.rows import Row, as_uuid
from moorage.manager.store.database.search import contains

CURSOR_LENGTH = 2000
_PARAMETER = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class Order:
    """Orders of one listing. ``fields``: the fields that it may be sorted by. No field is nullable,
    and each has an index or belongs to a table that stays small. ``key``: unique; it breaks ties.
    ``default``: like ``Paging.sort``."""

    fields: Mapping[str, ColumnElement[Any]]
    key: Sequence[ColumnElement[Any]]
    default: str

    @property
    def sorts(self) -> frozenset[str]:
        """Allowed values of ``Paging.sort``."""
        return frozenset(self.fields) | {f"-{name}" for name in self.fields}


async def fetch_page(
    db: Database, statement: Select[Any], order: Order, paging: Paging
) -> tuple[list[Row], str | None]:
    """Fetch one page of the rows of ``statement``, and the cursor of the next one. ``statement``
    returns the columns by which it is ordered, under their names. Raises ``InvalidInput`` for a
    cursor that is not the ``next`` of a page in the same order, and for an order that the listing
    does not have."""
    sort = paging.sort or order.default
    if sort not in order.sorts:
        allowed = ", ".join(sorted(order.fields))
        raise InvalidInput(
            f"sort {sort[:40]!r} is not possible here",
            field="sort",
            where="query",
            next_step=f"sort by {allowed}, with - for descending order",
        )

    first = order.fields[sort.removeprefix("-")]
    columns = [first, *(column for column in order.key if column is not first)]
    descending = sort.startswith("-")
    if paging.cursor is not None:
        values = _read(paging.cursor, sort, [column.type for column in columns])
        bound = tuple_(*(literal(value, c.type) for value, c in zip(values, columns, strict=True)))
        position = tuple_(*columns)
        statement = statement.where(position < bound if descending else position > bound)

    ordered = [column.desc() if descending else column.asc() for column in columns]
    rows = await db.select(statement.order_by(*ordered).limit(paging.limit + 1))
    shown = rows[: paging.limit]
    if len(rows) <= paging.limit:
        return shown, None

    return shown, _make(
        sort, [shown[-1][column.key] for column in columns if column.key is not None]
    )


@dataclass(frozen=True, slots=True)
class Listing:
    """A statement of ``sql/`` that selects all items, as a listing. ``columns``: the columns by
    which it is sorted and filtered; ``sorts``: the fields among them; ``key``: unique; ``default``:
    like ``Paging.sort``."""

    sql: str
    columns: Mapping[str, Any]
    sorts: Sequence[str]
    key: Sequence[str]
    default: str

    async def page(
        self,
        db: Database,
        paging: Paging,
        *args: Any,
        only: Mapping[str, Any] = MappingProxyType({}),
        without: Mapping[str, Collection[str]] = MappingProxyType({}),
        containing: Mapping[str, str | None] = MappingProxyType({}),
    ) -> tuple[list[Row], str | None]:
        """Fetch one page, like ``fetch_page``. ``args``: arguments of the statement. ``only``:
        values by column, a collection for several, None for all; ``without``: values that are left
        out; ``containing``: parts of values, None for all."""
        # Untyped, because Postgres infers the types of a hand-written statement.
        bound = [bindparam(f"p{number}", value, NullType()) for number, value in enumerate(args, 1)]
        parsed = text(_PARAMETER.sub(r":p\1 ", self.sql)).bindparams(*bound)
        table = parsed.columns(**self.columns).subquery("listed")
        found = table.c
        conditions = [
            found[name].in_(sorted(value))
            if isinstance(value, Collection) and not isinstance(value, str)
            else found[name] == value
            for name, value in only.items()
            if value is not None
        ]
        conditions += [
            found[name].not_in(sorted(values)) for name, values in without.items() if values
        ]
        conditions += [
            contains(found[name], part) for name, part in containing.items() if part is not None
        ]
        order = Order(
            {name: found[name] for name in self.sorts}, [found[n] for n in self.key], self.default
        )
        statement = select(text("listed.*")).select_from(table).where(*conditions)

        return await fetch_page(db, statement, order, paging)


def _make(sort: str, values: Sequence[Any]) -> str:
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in values]
    packed = json.dumps([sort, *plain], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _read(cursor: str, sort: str, types: Sequence[TypeEngine[Any]]) -> list[Any]:
    try:
        if len(cursor) > CURSOR_LENGTH:
            raise ValueError

        found = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(found, list) or not found or not isinstance(found[0], str):
            raise ValueError

        if found[0] != sort:
            raise InvalidInput(
                f"the cursor belongs to a listing with sort={found[0][:40]!r}, not {sort!r}",
                field="cursor",
                where="query",
                next_step="keep `sort` and the filters from page to page",
            )

        if len(found) != len(types) + 1:
            raise ValueError

        return [_value(value, kind) for value, kind in zip(found[1:], types, strict=True)]
    except (ValueError, binascii.Error, RecursionError) as error:
        raise invalid_cursor(cursor) from error


def _value(value: Any, kind: TypeEngine[Any]) -> Any:
    """Convert a value. Raises ``ValueError``."""
    if isinstance(kind, BigInteger | Integer):
        if type(value) is int and abs(value) < 2**31 * (1 if type(kind) is Integer else 2**31):
            return value
        raise ValueError

    if not isinstance(value, str) or "\0" in value:
        raise ValueError

    if isinstance(kind, TIMESTAMP):
        if (at := datetime.fromisoformat(value)).tzinfo is None:
            raise ValueError
        return at

    if isinstance(kind, UUID) and as_uuid(value) is None:
        raise ValueError

    return value


def read_number_cursor(cursor: str) -> int:
    """Read a cursor for lists ordered by a bigint key. Raises ``InvalidInput``."""
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise invalid_cursor(cursor)
    return int(cursor)


def read_id_cursor(cursor: str) -> str:
    """Read a cursor for lists ordered by a UUID. Raises ``InvalidInput``."""
    if (item_id := as_uuid(cursor)) is None:
        raise invalid_cursor(cursor)
    return item_id


def invalid_cursor(cursor: str) -> InvalidInput:
    return InvalidInput(
        f"cursor {cursor[:40]!r} is not valid",
        field="cursor",
        where="query",
        next_step="pass the `next` of the previous page, unchanged",
    )
