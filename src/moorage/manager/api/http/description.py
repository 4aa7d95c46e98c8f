"""Description of the REST API for clients, built on the first request because few clients ask for
it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Description:
    """``document``: OpenAPI as JSON. ``page``: HTML generated from it."""

    document: bytes
    page: str


class LazyDescription:
    """Calls ``make`` once, in a thread, and finishes even if the first requester stops waiting."""

    def __init__(self, make: Callable[[], Description]) -> None:
        self._make = make
        self._made: asyncio.Future[Description] | None = None

    async def get(self) -> Description:
        if self._made is None:
            self._made = asyncio.get_running_loop().run_in_executor(None, self._make)
        return await asyncio.shield(self._made)
