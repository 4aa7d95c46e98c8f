"""Description of the REST API as clients read it: made at the first request for it, since few
ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Description:
    """``document``: in OpenAPI, as JSON. ``page``: HTML, made from it."""

    document: bytes
    page: str


class LazyDescription:
    """``make`` runs in a thread, once, whoever asks and whoever no longer waits."""

    def __init__(self, make: Callable[[], Description]) -> None:
        self._make = make
        self._made: asyncio.Future[Description] | None = None

    async def get(self) -> Description:
        if self._made is None:
            self._made = asyncio.get_running_loop().run_in_executor(None, self._make)
        return await asyncio.shield(self._made)
