"""Whole truths sent as deltas, with a digest that shows drift. Pure; both ends of the agent link use it.

A truth is a set of items by id. Its digest is the sum of the items' hashes modulo 2^64, so that it is kept
up to date at the cost of what changes, and each end computes it from its own copy: a lost, doubled or
misapplied delta makes the sums differ, and then the whole is sent again. Deltas only save bytes and time;
they are never a second truth.
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
    """64 bits of an item. ``item`` needs a ``repr`` that shows all of it, as frozen dataclasses have."""
    digest = hashlib.blake2b(f"{item_id}\0{item!r}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


@dataclass(frozen=True, slots=True)
class Delta(Generic[Id, Item]):
    """``digest`` is that of the whole after it was applied."""

    changed: Mapping[Id, Item]
    gone: frozenset[Id]
    digest: int


class Truth(Generic[Id, Item]):
    """One end's copy: what was sent last, or what was received so far."""

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

    def advance(self, items: Mapping[Id, Item]) -> Delta[Id, Item]:
        """Become ``items``; returns the delta that takes the other end along."""
        gone = frozenset(self._items.keys() - items.keys())
        changed = {
            item_id: item
            for item_id, item in items.items()
            if (known := self._items.get(item_id)) is None or known[0] != item
        }
        self._drop(gone)
        for item_id, item in changed.items():
            self._put(item_id, item)
        return Delta(changed, gone, self.digest)

    def apply(self, delta: Delta[Id, Item]) -> bool:
        """Take in the other end's delta; False: the two have drifted apart, and this copy is void."""
        self._drop(delta.gone)
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
