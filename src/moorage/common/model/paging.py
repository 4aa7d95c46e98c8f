"""Pages of listings: which one a caller wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Paging:
    """``cursor``: the ``next`` of the page before; None: the first page. ``sort``: a field of the
    listing, with "-" in front for descending order; "": the order that the listing has by
    default."""

    limit: int = 50
    cursor: str | None = None
    sort: str = ""


FIRST = Paging()


class SessionMatch(TypedDict, total=False):
    """Fields of the sessions of a listing, with the value that each must have."""

    resource_group: str | None
    type: str | None
    name: str | None
    user: str | None
    project: str | None
