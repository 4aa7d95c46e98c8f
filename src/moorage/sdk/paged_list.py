"""Lists of the REST API, read page by page: their items, or the pages with their cursors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from typing import Any, Generic, TypeVar

from moorage.common.views.resources import Page
from moorage.sdk.loop_thread import LoopThread
from moorage.sdk.transport import Transport

T = TypeVar("T")

# The largest page that a manager returns.
_PAGE_SIZE = 500


class PagedList(Generic[T]):
    """The items of a list, which are read only when they are used.

    ``async for item in items`` reads pages as the loop needs them. ``await items`` reads all pages
    and returns a list of the items. Both raise ``ApiError`` and ``Unreachable``.

    ``limit``: the most items to read; None means all. ``is_paged``: whether the manager splits the
    list into pages.
    """

    def __init__(
        self,
        client: Transport,
        page_type: type[Page[T]],
        path: str,
        query: Mapping[str, str | None] | None = None,
        *,
        limit: int | None = None,
        is_paged: bool = True,
    ) -> None:
        self._client = client
        self._page_type = page_type
        self._path = path
        self._query = query or {}
        self._limit = limit
        self._is_paged = is_paged

    async def __aiter__(self) -> AsyncIterator[T]:
        left = self._limit
        cursor: str | None = None
        while left is None or left > 0:
            page = await self.page(cursor, size=_PAGE_SIZE if left is None else left)
            for item in page.items[:left]:
                yield item

            left = None if left is None else left - len(page.items)
            cursor = page.next
            if cursor is None:
                return

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._all().__await__()

    async def _all(self) -> list[T]:
        return [item async for item in self]

    async def pages(self, *, size: int = _PAGE_SIZE) -> AsyncIterator[Page[T]]:
        """All pages of up to ``size`` items, regardless of ``limit``."""
        cursor: str | None = None
        while True:
            page = await self.page(cursor, size=size)
            yield page
            cursor = page.next
            if cursor is None:
                return

    async def page(self, cursor: str | None = None, *, size: int = 50) -> Page[T]:
        """One page of up to ``size`` items: the first, or the one identified by ``next`` of the
        previous page."""
        query = dict(self._query)
        if self._is_paged:
            query |= {"cursor": cursor, "limit": str(min(size, _PAGE_SIZE))}
        return await self._client.call(self._page_type, "GET", self._path, query=query)


class SyncPagedList(Generic[T]):
    """The items of a list, like ``PagedList``: ``for item in items``, ``list(items)``."""

    def __init__(self, loop: LoopThread, items: PagedList[T]) -> None:
        self._loop = loop
        self._items = items

    def __iter__(self) -> Iterator[T]:
        return self._loop.iterate(self._items.__aiter__)

    def pages(self, *, size: int = _PAGE_SIZE) -> Iterator[Page[T]]:
        """As ``PagedList.pages``."""
        return self._loop.iterate(lambda: self._items.pages(size=size))

    def page(self, cursor: str | None = None, *, size: int = 50) -> Page[T]:
        """As ``PagedList.page``."""
        return self._loop.run(self._items.page(cursor, size=size))
