"""Body memory: the total size of the large request bodies that one process keeps. Pure.

A body is kept from its first byte until the response starts, because ``model`` may be anywhere in
it, and because another replica may have to get it.
"""

from __future__ import annotations


class BodyMemory:
    """The bodies of all requests together, up to ``max_bytes``."""

    __slots__ = ("_bytes", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0

    @property
    def used(self) -> int:
        return self._bytes

    def take(self, size: int) -> bool:
        """Keep ``size`` more bytes. Returns False if there is no room for them."""
        if self._bytes + size > self._max_bytes:
            return False
        self._bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Free ``size`` bytes."""
        self._bytes -= size
