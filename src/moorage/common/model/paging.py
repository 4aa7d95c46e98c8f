"""Pages of listings: the page that a caller requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Paging:
    """``cursor``: the ``next`` of the previous page; None for the first page. ``sort``: a field of
    the listing, prefixed with "-" for descending order; "" for the listing's default order."""

    limit: int = 50
    cursor: str | None = None
    sort: str = ""


FIRST = Paging()


class SessionMatch(TypedDict, total=False):
    """Values that the sessions in a listing must have in these fields."""

    resource_group: str | None
    type: str | None
    name: str | None
    user: str | None
    project: str | None
