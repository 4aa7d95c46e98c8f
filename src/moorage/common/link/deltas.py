"""Digest of a synchronized set of items, which detects that its two ends have drifted apart. Pure.

The digest is the sum of the hashes of the items' contents modulo 2^64. The cost of an update is
proportional to the change, and each end computes the digest from its own copy. A lost, repeated or
misapplied delta makes the digests differ; the full set is then sent again. An item's content is the
bytes that are sent, never one end's own representation, because ends of different releases know
different fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, KeysView

_MODULUS = 1 << 64


class SetDigest:
    """One end's copy of a set: the ids of its items, and the digest of their contents
    (``value``)."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}
        self.value = 0

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._hashes

    def has(self, item_id: str, content: bytes) -> bool:
        """Whether the item exists with this content."""
        return self._hashes.get(item_id) == _hash(content)

    def ids(self) -> KeysView[str]:
        return self._hashes.keys()

    def clear(self) -> None:
        self._hashes.clear()
        self.value = 0

    def change(self, contents: Iterable[tuple[str, bytes]], removed: Iterable[str] = ()) -> None:
        """Set the contents of these items, and drop the removed ones."""
        for item_id in removed:
            self.value = (self.value - self._hashes.pop(item_id, 0)) % _MODULUS
        for item_id, content in contents:
            value = _hash(content)
            self.value = (self.value + value - self._hashes.get(item_id, 0)) % _MODULUS
            self._hashes[item_id] = value


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
