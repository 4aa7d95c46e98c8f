"""The seam between what the proxy decides and how bytes move."""

from __future__ import annotations

from typing import Protocol


class DataPlane(Protocol):
    """Takes clients' requests, asks a ``Decider`` about each, and moves bytes between client and replica.

    A data plane promises: the bodies' bytes pass unchanged in both directions and as they come; no other
    replica is tried after the first byte of an answer; a client that leaves frees its replica within
    100 ms; an answer that breaks off never looks whole; every error it makes itself has the shape of
    ``refusal.Refuse``; counts are released however a request ends.
    """

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address that was really bound (``port`` 0: any). Raises ``OSError``."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Accept nothing new, give what runs ``grace_s`` seconds to end, then cut it."""
        ...
