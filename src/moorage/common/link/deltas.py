"""Deltas of a synchronized set of items, with a digest that detects drift. Pure.

The digest of a set is the sum of its items' hashes modulo 2^64. It is updated at the cost of what changes,
and each end computes it from its own copy. A lost, repeated or misapplied delta makes the digests differ; the
full set is then sent again. Deltas only save bytes and time, and are never the source of truth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

Id = TypeVar("Id", bound=str)
Item = TypeVar("Item")

_MODULUS = 1 << 64


def item_hash(item_id: str, item: object) -> int:
    """64-bit hash of an item. Its ``repr`` must show all of it, as that of a frozen dataclass does."""
    digest = hashlib.blake2b(f"{item_id}\0{item!r}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


@dataclass(frozen=True, slots=True)
class Delta(Generic[Id, Item]):
    """``digest`` is that of the full set after the delta."""

    changed: Mapping[Id, Item]
    removed: frozenset[Id]
    digest: int


class SyncSet(Generic[Id, Item]):
    """One end's copy of a set of items by id: what was sent last, or what has been received."""

    def __init__(self) -> None:
        self._items: dict[Id, tuple[Item, int]] = {}
        self.digest = 0

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> dict[Id, Item]:
        return {item_id: item for item_id, (item, _) in self._items.items()}

    def replace(self, items: Mapping[Id, Item]) -> None:
        self._items.clear()
        self.digest = 0
        for item_id, item in items.items():
            self._put(item_id, item)

    def update(self, items: Mapping[Id, Item]) -> Delta[Id, Item]:
        """Become ``items``. Returns the delta that does the same to the other end's copy."""
        removed = frozenset(self._items.keys() - items.keys())
        changed = {
            item_id: item
            for item_id, item in items.items()
            if (known := self._items.get(item_id)) is None or known[0] != item
        }
        self._drop(removed)
        for item_id, item in changed.items():
            self._put(item_id, item)
        return Delta(changed, removed, self.digest)

    def apply(self, delta: Delta[Id, Item]) -> bool:
        """Apply the other end's delta. False: the copies have drifted apart, and this one is void."""
        self._drop(delta.removed)
        for item_id, item in delta.changed.items():
            self._put(item_id, item)
        return self.digest == delta.digest

    def _put(self, item_id: Id, item: Item) -> None:
        self._drop((item_id,))
        value = item_hash(item_id, item)
        self._items[item_id] = item, value
        self.digest = (self.digest + value) % _MODULUS

    def _drop(self, ids: Iterable[Id]) -> None:
        for item_id in ids:
            if (known := self._items.pop(item_id, None)) is not None:
                self.digest = (self.digest - known[1]) % _MODULUS
