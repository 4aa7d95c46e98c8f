"""An event loop in a separate thread, which runs asynchronous calls for programs without
asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_END: Any = object()


class LoopThread:
    """Runs coroutines between ``start`` and ``stop``, for any number of threads."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        loop = asyncio.new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(target=loop.run_forever, name="moorage.sdk", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the iterators that were left open, then stop the loop."""
        loop = self._loop
        thread = self._thread
        assert loop is not None
        assert thread is not None

        try:
            self.run(loop.shutdown_asyncgens())
        finally:
            self._loop = None
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return a coroutine's result. Raises ``RuntimeError`` if the loop is not running."""
        if self._loop is None:
            work.close()
            raise RuntimeError("use the client within `with SyncClient(...) as client`")
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:  # Ctrl-C, too
            running.cancel()
            raise

    def iterate(self, begin: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yield the items of the iterator that ``begin`` returns in the loop. Closing the generator
        ends the stream."""

        async def beginning() -> AsyncIterator[T]:
            return begin()

        async def following() -> T:
            return await anext(items, _END)

        async def end() -> None:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

        items = self.run(beginning())
        try:
            while (item := self.run(following())) is not _END:
                yield item
        finally:
            if self._loop is not None:  # otherwise, reaching its end has closed the iterator
                self.run(end())
