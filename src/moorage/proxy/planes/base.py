"""Protocol of a data plane."""

from __future__ import annotations

import socket
from typing import Protocol


class DataPlane(Protocol):
    """A data plane accepts requests, consults a ``RequestRouter`` about each, and moves bytes
    between client and replica.

    Every data plane guarantees:

    * Bodies pass unchanged in both directions, without waiting for their end.
    * No other replica is tried after the first byte of a response.
    * A client that disconnects frees its replica within 100 ms.
    * An interrupted response never looks complete.
    * Errors of the data plane itself have the format of ``error_response.ErrorResponse``.
    * In-flight counts are released however a request ends.
    """

    async def start(
        self, host: str, port: int, listening: socket.socket | None = None
    ) -> tuple[str, int]:
        """Listen, and return the bound address (``port`` 0 selects a free one). Raises ``OSError``.

        ``listening``: for a worker, a socket that is already listening at this address."""
        ...

    async def retire(self, grace_s: float) -> None:
        """Accept no new connections, and announce the end of each open one with its next response.
        Returns when no connection is left or none has had a recent request, after ``grace_s``
        seconds at the latest. ``stop`` is called next."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Accept no new connections, wait up to ``grace_s`` seconds for running requests, then
        abort them."""
        ...
