"""Pages of in-memory listings. Their cursors are positions, unlike the real ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from moorage.common.model.errors import InvalidInput
from moorage.common.model.paging import Paging
from moorage.common.views.resources import Page

V = TypeVar("V")


def page(found: Iterable[V], paging: Paging) -> Page[V]:
    kept = list(found)
    cursor = paging.cursor
    if cursor is not None and not cursor.isdigit():
        raise InvalidInput(f"{cursor!r} is not a cursor", next_step="use `next` of the page before")
    begin = int(cursor or 0)
    following = str(begin + paging.limit) if begin + paging.limit < len(kept) else None
    return Page(items=kept[begin : begin + paging.limit], next=following)
