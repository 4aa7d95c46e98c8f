"""Resources of the client, such as ``client.secrets``, and how their calls work without asyncio."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from moorage.common.views.resources import Page
from moorage.sdk.loop_thread import LoopThread
from moorage.sdk.paged_list import PagedList, SyncPagedList
from moorage.sdk.transport import Transport

P = ParamSpec("P")
T = TypeVar("T")


class Resource:
    """Calls about one kind of object, through ``client``."""

    def __init__(self, client: Transport) -> None:
        self._client = client
        self._call = client.call

    def _list(
        self,
        item_type: type[T],
        path: str,
        query: Mapping[str, str | None] | None = None,
        *,
        limit: int | None = None,
        is_paged: bool = True,
    ) -> PagedList[T]:
        """The items of the list at ``path``. ``limit``, ``is_paged``: as in ``PagedList``."""
        page_type: type[Page[T]] = Page[item_type]  # type: ignore[valid-type]  # a type at runtime
        return PagedList(self._client, page_type, path, query, limit=limit, is_paged=is_paged)


R = TypeVar("R", bound=Resource)


class SyncResource(Generic[R]):
    """The calls of ``resource``, each run to completion in ``loop``."""

    def __init__(self, loop: LoopThread, resource: R) -> None:
        self._loop = loop
        self._resource = resource


def time_window(
    since: datetime | None, until: datetime | None, step: str | None
) -> dict[str, str | None]:
    """The query for values over time."""
    return {
        "from": since.isoformat() if since else None,
        "to": until.isoformat() if until else None,
        "step": step,
    }


def blocking(
    method: Callable[Concatenate[R, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncResource[R], P], T]:
    """``method`` as a blocking method that returns its answer."""

    @functools.wraps(method)
    def call(self: SyncResource[R], /, *args: P.args, **options: P.kwargs) -> T:
        return self._loop.run(method(self._resource, *args, **options))

    return call


def listed(
    method: Callable[Concatenate[R, P], PagedList[T]],
) -> Callable[Concatenate[SyncResource[R], P], SyncPagedList[T]]:
    """``method`` as a blocking method whose list can be read in a plain loop."""

    @functools.wraps(method)
    def call(self: SyncResource[R], /, *args: P.args, **options: P.kwargs) -> SyncPagedList[T]:
        return SyncPagedList(self._loop, method(self._resource, *args, **options))

    return call


def iterated(
    method: Callable[Concatenate[R, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncResource[R], P], Iterator[T]]:
    """``method`` as a generator. Closing it ends the stream."""

    @functools.wraps(method)
    def iterate(self: SyncResource[R], /, *args: P.args, **options: P.kwargs) -> Iterator[T]:
        return self._loop.iterate(lambda: method(self._resource, *args, **options))

    return iterate
