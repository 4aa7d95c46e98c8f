"""Query parameters shared by listings: page, order and selector."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, Field

from moorage.common.model.labels import SELECTOR_LENGTH, parse_selector
from moorage.common.model.paging import MAX_LIMIT, Paging
from moorage.common.model.spec import Model, NoNul

# The default for listings that people read as a whole, such as resource groups.
WHOLE = 500


def split_list(value: Any) -> Any:
    """Accept comma-separated and repeated values."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list):
        return value
    return [item.strip() for part in parts for item in str(part).split(",") if item.strip()]


class PageQuery(Model):
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 50
    cursor: Annotated[NoNul | None, Field(description="The `next` of the previous page.")] = None


class WholeQuery(PageQuery):
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = WHOLE


class _Sorted(Protocol):
    @property
    def limit(self) -> int: ...
    @property
    def cursor(self) -> str | None: ...
    @property
    def sort(self) -> str: ...


def paging(query: _Sorted) -> Paging:
    """The page that a query requests."""
    return Paging(query.limit, query.cursor, query.sort)


def order(default: str) -> Any:
    """The sort field of a query."""
    return Field(default, description="Field to sort by; a leading - sorts in descending order.")


SearchText = Annotated[
    NoNul,
    Field(
        min_length=1,
        max_length=100,
        description="Only items whose name contains this text, in upper or lower case.",
    ),
]


def _check_selector(text: str) -> str:
    parse_selector(text)
    return text


SelectorText = Annotated[
    str,
    Field(
        max_length=SELECTOR_LENGTH,
        description=(
            "Only items with these user labels, in Kubernetes syntax: `team=vision,stage in "
            "(a,b),!old`."
        ),
        examples=["team=vision,stage in (dev,test)"],
    ),
    AfterValidator(_check_selector),
]
